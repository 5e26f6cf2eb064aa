// Package download serves files of runners and outputs of executions over HTTP, at signed addresses
// from the API. An address needs no token, and can't be forged. It is valid for Life, and ends
// earlier with the token or grant that requested it. A request with a token or a grant needs no
// signature.
//
// A download has exactly the bytes of its Content-Length, or its connection breaks. It uses one
// buffer of memory. When its client disconnects, the runner stops reading immediately.
package download

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Life is the validity of an address. A download that has begun continues, unless its token ends.
const Life = 10 * time.Minute

// KeySize is the size of a key in bytes.
const KeySize = sha256.Size

// Links signs addresses and verifies them. It is safe for concurrent use.
type Links struct {
	key   []byte
	clock timing.Clock
}

// NewLinks returns Links with a secret key of KeySize bytes. With a shorter key it generates one,
// so that its addresses end with this process.
func NewLinks(key []byte) *Links {
	if len(key) < KeySize {
		key = make([]byte, KeySize)
		_, _ = rand.Read(key) // it never fails
	}
	return &Links{key: key, clock: timing.NewClock()}
}

// File returns a file's address for a caller, without scheme and host.
func (l *Links) File(by access.Principal, file runtime.File) string {
	signed := l.sign(by, "file", string(file.Runner), file.At)
	signed.Set("path", file.At)
	return "/files/" + url.PathEscape(string(file.Runner)) + "?" + signed.Encode()
}

// Output returns the address of an execution's output for a caller, without scheme and host.
func (l *Links) Output(by access.Principal, id runtime.ExecutionID) string {
	return "/outputs/" + url.PathEscape(string(id)) + "?" + l.sign(by, "output", string(id)).Encode()
}

// sign returns the parameters of a signed address. It expires after Life, or earlier with a grant.
func (l *Links) sign(by access.Principal, what ...string) url.Values {
	until := l.clock.Now().Add(Life)
	if by.Grant != nil && by.Grant.Expires.Before(until) {
		until = by.Grant.Expires
	}
	expires := strconv.FormatInt(until.Unix(), 10)
	signed := url.Values{"expires": {expires}, "signature": {l.signature(expires, by.ID, what)}}
	if by.ID != "" {
		signed.Set("token", by.ID)
	}
	return signed
}

// signature signs texts without NUL. Different lists never have the same signature.
func (l *Links) signature(expires, token string, what []string) string {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(expires + "\x00" + token + "\x00" + strings.Join(what, "\x00"))) // it never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// check returns FORBIDDEN for an address with a wrong signature, or an expired one. Its parameter
// token is the id of the token that requested it.
func (l *Links) check(query url.Values, what ...string) error {
	expires := query.Get("expires")
	if !hmac.Equal([]byte(query.Get("signature")), []byte(l.signature(expires, query.Get("token"), what))) {
		return runtime.Errorf(runtime.CodeForbidden, "this address has no valid signature: use File.downloadUrl or Execution.outputUrl unchanged")
	}
	if until, err := strconv.ParseInt(expires, 10, 64); err != nil || l.clock.Now().Unix() >= until {
		return errExpired
	}
	return nil
}

// errExpired is the error for an address that was valid. Its status is 410, not 403.
var errExpired = runtime.Errorf(runtime.CodeForbidden, "this address has expired, since it is valid for %d minutes at most: query File.downloadUrl or Execution.outputUrl again", int(Life.Minutes()))
