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

// attemptLifetime is the time limit for signing in at the provider.
const attemptLifetime = 10 * time.Minute

// An attempt is an attempt to sign in. It is stored, encrypted, in a cookie of the browser in which
// it started.
type attempt struct {
	State    string // the provider returns it
	Nonce    string // the ID token must have it
	Verifier string // PKCE code verifier, for the token endpoint
	Return   string // path to go to afterwards
	Expires  time.Time
}

// newAttempt returns an attempt with new random values. back is the path to go to afterwards.
func newAttempt(back string, now time.Time) attempt {
	return attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back, Expires: now.Add(attemptLifetime)}
}

// attempts encrypts attempts, and accepts each one only once. The key exists only in this process:
// after a restart, people must start again, because the server doesn't know which attempts were
// used.
type attempts struct {
	aead cipher.AEAD

	mu    sync.Mutex // guards the fields below
	used  map[string]struct{}
	order []usedAttempt // of used, oldest first
}

// A usedAttempt is a used attempt and the time after which it can be forgotten.
type usedAttempt struct {
	state  string
	forget time.Time
}

// mostUsed is the maximum number of remembered used attempts. An older attempt could be used again,
// but the provider accepts its code only once.
const mostUsed = 10_000

// newAttempts returns attempts with a new random key.
func newAttempts() *attempts {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
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

// seal encrypts an attempt to the value of a cookie.
func (a *attempts) seal(attempt attempt) (string, error) {
	text, err := json.Marshal(attempt)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(a.aead.Seal(nil, nil, text, nil)), nil
}

// errNoAttempt is the error for a cookie without a valid attempt of this process.
var errNoAttempt = errors.New("the cookie isn't from this process, or has expired")

// open decrypts the attempt in a cookie.
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

// use marks an attempt as used, and reports whether this is its first use.
func (a *attempts) use(state string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	// After its time, open refuses an attempt anyway. Beyond mostUsed, the oldest ones are
	// forgotten.
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
