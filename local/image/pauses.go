package image

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/renameio/v2"

	"github.com/rockpool/rockpool/runtime"
)

// hostPauses records hosts (registries and token services) that asked for a pause. The server sends them no request
// before its end. Its methods are safe for concurrent use.
type hostPauses struct {
	file    string     // keeps them, unless it is empty
	storing sync.Mutex // held while the file is written

	mu    sync.Mutex // guards hosts
	hosts map[string]*pauseError
}

type pauseError struct {
	Host   string    `json:"host"`
	Status int       `json:"status"`
	Words  string    `json:"words,omitempty"` // the host's own, if it has some
	Until  time.Time `json:"until"`
}

func (*pauseError) Error() string { return "the host asked for a pause" }

func (e *pauseError) forClients() error {
	says := ""
	if e.Words != "" {
		says = fmt.Sprintf(" and says %q", e.Words)
	}
	state := "limits requests"
	if e.Status == http.StatusServiceUnavailable {
		state = "is unavailable"
	}
	next := time.Now().Add(time.Until(e.Until) + time.Second - 1).UTC().Format("15:04:05 MST")
	return runtime.Wrap(runtime.CodeClusterUnavailable, e, "the registry's host %.200s %s (status %d)%s: the server sends the next request there at %s", e.Host, state, e.Status, says, next)
}

// Bounds of a pause. Docker Hub counts in windows of 6 hours.
const (
	usualPause   = time.Minute // after status 429 without a time
	longestPause = 6 * time.Hour
)

const pausesName = "held.json" // in Config.Dir

const maxPauses = 256

// openPauses loads the pauses that an earlier server stored and that haven't ended.
func openPauses(dir string) *hostPauses {
	h := &hostPauses{hosts: map[string]*pauseError{}}
	if dir == "" {
		return h
	}
	h.file = filepath.Join(dir, pausesName)
	var all []*pauseError
	if text, err := os.ReadFile(h.file); err != nil || json.Unmarshal(text, &all) != nil {
		return h // at worst a host refuses another request
	}
	for _, e := range all {
		if e != nil && time.Until(e.Until) <= longestPause {
			e.Until = time.Now().Add(time.Until(e.Until)) // from now on the monotonic clock counts
			h.add(e)
		}
	}
	return h
}

func (h *hostPauses) check(host string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[host]; e != nil && time.Now().Before(e.Until) {
		return e.forClients()
	}
	return nil
}

func (h *hostPauses) note(host string, answer *http.Response) error {
	pause, given := retryAfter(answer.Header)
	if answer.StatusCode != http.StatusTooManyRequests && (answer.StatusCode != http.StatusServiceUnavailable || !given) {
		return nil
	}
	e := &pauseError{host, answer.StatusCode, ownWords(answer), time.Now().Add(pause)}
	h.storing.Lock()
	defer h.storing.Unlock()
	text, err := json.Marshal(h.add(e))
	if err == nil && h.file != "" {
		err = renameio.WriteFile(h.file, text, 0o600, renameio.WithTempDir(filepath.Dir(h.file)), renameio.WithStaticPermissions(0o600))
	}
	if err != nil {
		return errors.Join(e.forClients(), err)
	}
	return e.forClients()
}

// add holds a host, and returns all pauses that haven't ended. Above maxPauses it drops the one that ends first.
func (h *hostPauses) add(e *pauseError) []*pauseError {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts[e.Host] = e
	all := slices.SortedFunc(maps.Values(h.hosts), func(a, b *pauseError) int { return b.Until.Compare(a.Until) })
	for n := len(all) - 1; n >= 0 && (n >= maxPauses || !time.Now().Before(all[n].Until)); n-- {
		delete(h.hosts, all[n].Host)
		all = all[:n]
	}
	return all
}

// retryAfter returns the pause that a header asks for, and whether it does: in seconds, as a date, or, as
// Docker Hub writes it, in Unix seconds.
func retryAfter(header http.Header) (pause time.Duration, given bool) {
	text := strings.TrimSpace(cmp.Or(header.Get("Retry-After"), header.Get("X-Retry-After")))
	const unixSeconds = 900_000_000 // larger numbers are a date
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > unixSeconds {
		pause = time.Until(time.Unix(n, 0))
	} else if err == nil {
		pause = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		pause = time.Until(at)
	} else {
		return usualPause, false
	}
	return min(max(pause, time.Second), longestPause), true
}

// ownWords returns what a host wrote about its refusal, for people. "" if it wrote nothing, or something that
// it was sent: that may be a secret.
func ownWords(answer *http.Response) string {
	const most, shown = 8 << 10, 300
	text, _ := io.ReadAll(io.LimitReader(answer.Body, most))
	var document struct {
		Errors  []struct{ Code, Message string }
		Details string
		Message string
	}
	words := string(text)
	if json.Unmarshal(text, &document) == nil {
		words = cmp.Or(document.Details, document.Message)
		if len(document.Errors) > 0 {
			words = document.Errors[0].Message
		}
	} else if strings.Contains(answer.Header.Get("Content-Type"), "html") {
		return ""
	}
	words = strings.Join(strings.FieldsFunc(words, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar }), " ")
	q := answer.Request
	if q.Body != nil && q.Body != http.NoBody { // to a token service
		return ""
	}
	_, sent, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	_, password, _ := q.BasicAuth()
	for _, secret := range []string{sent, password} {
		if secret != "" && strings.Contains(words, secret) {
			return ""
		}
	}
	return fmt.Sprintf("%.*s", shown, words)
}
