package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// attemptLifetime is how long a person has at the provider.
const attemptLifetime = 10 * time.Minute

// An attempt to sign in is stored in a cookie of the browser in which it began, sealed.
type attempt struct {
	State    string // that the provider returns
	Nonce    string // that the ID token must have
	Verifier string // of PKCE, which the token endpoint wants
	Return   string // path to go to afterwards
	Expires  time.Time
}

func newAttempt(back string, now time.Time) attempt {
	return attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back, Expires: now.Add(attemptLifetime)}
}

// attempts seals attempts, and lets each end once. The key lives as long as the process. After a
// restart people begin again: the server doesn't know which attempts were used before.
type attempts struct {
	aead cipher.AEAD

	mu    sync.Mutex // guards what follows
	used  map[string]struct{}
	order []usedAttempt // of used, oldest first
}

type usedAttempt struct {
	state  string
	forget time.Time
}

// mostUsed bounds how many used attempts are remembered. Beyond it the oldest could be used again, but
// the provider takes its code only once.
const mostUsed = 10_000

func newAttempts() *attempts {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the wrong length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return &attempts{aead: aead, used: map[string]struct{}{}}
}

// seal returns an attempt as the value of a cookie.
func (a *attempts) seal(attempt attempt) (string, error) {
	text, err := json.Marshal(attempt)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(a.aead.Seal(nil, nil, text, nil)), nil
}

var errNoAttempt = errors.New("the cookie is none of this process, or expired")

// open returns the attempt that a cookie has.
func (a *attempts) open(sealed string, now time.Time) (attempt attempt, err error) {
	bytes, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return attempt, errNoAttempt
	}
	text, err := a.aead.Open(nil, nil, bytes, nil)
	if err != nil {
		return attempt, errNoAttempt
	}
	if err := json.Unmarshal(text, &attempt); err != nil {
		return attempt, err
	}
	if !now.Before(attempt.Expires) {
		return attempt, errNoAttempt
	}
	return attempt, nil
}

// use reports whether an attempt is used for the first time.
func (a *attempts) use(state string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.order) > 0 && (len(a.order) >= mostUsed || now.After(a.order[0].forget)) {
		delete(a.used, a.order[0].state)
		a.order = a.order[1:]
	}
	if _, before := a.used[state]; before {
		return false
	}
	a.used[state] = struct{}{}
	a.order = append(a.order, usedAttempt{state, now.Add(attemptLifetime)})
	return true
}
