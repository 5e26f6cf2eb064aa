package identity

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A token's text is tokenPrefix and the base64 of its id (a UUID) and of a secret of 256 random
// bits. The id finds the token, and the hash of the whole text authenticates it.
const (
	tokenPrefix = "rpt_"
	secretBytes = 32
)

// newSecret makes a token: its ID, its text, which contains the ID, and the hash that is stored.
func newSecret() (id, text string, hash []byte) {
	made := uuid.Must(uuid.NewV7())
	raw := slices.Concat(made[:], make([]byte, secretBytes))
	_, _ = rand.Read(raw[len(made):]) // never fails
	text = tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)
	return made.String(), text, hashOf(text)
}

// hashOf returns the hash of a token's text, which is stored in place of the text.
func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// idOf returns the id in a token's text, and false if the text isn't a token's.
func idOf(text string) (string, bool) {
	encoded, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != len(uuid.UUID{})+secretBytes {
		return "", false
	}
	return uuid.UUID(raw[:len(uuid.UUID{})]).String(), true
}

// IsMade reports whether a text has the form of the tokens that [Registry.CreateToken] makes.
func IsMade(text string) bool {
	_, made := idOf(text)
	return made
}

// same compares in constant time, so that timing discloses nothing.
func same(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// firstID returns the id of the token from a file. Different tokens get different ids. Without the
// server's key, the id doesn't disclose the token.
func firstID(key []byte, text string) string {
	mac := hmac.New(sha256.New, derive(key, "rockpool token file"))
	mac.Write([]byte(text)) // never fails
	return "file-" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// derive returns a key that is used for one purpose only.
func derive(key []byte, purpose string) []byte {
	derived, err := hkdf.Key(sha256.New, key, nil, purpose, sha256.Size)
	if err != nil {
		panic(err) // the length is a constant
	}
	return derived
}
