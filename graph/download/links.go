// Package download serves files of runners and outputs of executions over HTTP,
// at addresses that the API hands out. An address suffices, and nobody can make
// one: it is signed, and holds for Life, or until the token or grant ends that
// asked for it. A token or a grant suffices too.
//
// What is promised is kept: a download has exactly the bytes that its
// Content-Length says, or its connection breaks. Nothing is held of it but one
// buffer, and when its client leaves, the runner stops reading at once.
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
)

// Life is how long an address holds at most. A download that began goes on, unless its
// token ends.
const Life = 10 * time.Minute

// KeySize is how many bytes a key has.
const KeySize = sha256.Size

// Links makes addresses, and knows its own again. It may be used by many at
// once.
type Links struct{ key []byte }

// NewLinks returns Links with a key of KeySize bytes, which nobody else may
// know. With none they make one, and their addresses end with them.
func NewLinks(key []byte) *Links {
	if len(key) < KeySize {
		key = make([]byte, KeySize)
		_, _ = rand.Read(key) // it never fails
	}
	return &Links{key: key}
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

func (l *Links) sign(by access.Principal, what ...string) url.Values {
	until := time.Now().Add(Life)
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

// signature is over texts without NUL: no two lists of them look the same.
func (l *Links) signature(expires, token string, what []string) string {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(expires + "\x00" + token + "\x00" + strings.Join(what, "\x00"))) // it never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// check returns FORBIDDEN for an address that isn't ours, or not any more. Its parameter token
// is the id of the token that asked for it.
func (l *Links) check(query url.Values, what ...string) error {
	expires := query.Get("expires")
	if !hmac.Equal([]byte(query.Get("signature")), []byte(l.signature(expires, query.Get("token"), what))) {
		return runtime.Errorf(runtime.CodeForbidden, "this address isn't one that the server signed: take it as it is from File.downloadUrl or Execution.outputUrl")
	}
	if until, err := strconv.ParseInt(expires, 10, 64); err != nil || time.Now().Unix() >= until {
		return errExpired
	}
	return nil
}

var errExpired = runtime.Errorf(runtime.CodeForbidden, "this address has expired, as each does after %d minutes: ask for File.downloadUrl or Execution.outputUrl again", int(Life.Minutes()))
