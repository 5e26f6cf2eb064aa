package image

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/refusal"
)

// TestRegistryThatAsksForPause checks that no request is sent before the time, also by the next server.
func TestRegistryThatAsksForPause(t *testing.T) {
	t.Parallel()
	var requests, refusing atomic.Int64
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refusing.Load() == 0 {
				next.ServeHTTP(w, r)
				return
			}
			requests.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}`)
		})
	})
	reference := registry.Push(small(t, "x"), "x:1")
	dir := t.TempDir()
	b := newBox(t, dir, nil)
	pin, err := b.Resolve(t.Context(), reference)
	if err != nil {
		t.Fatal(err)
	}
	refusing.Store(1)
	b.use(pin.Digest, true)
	b.Want(reference, pin.Digest)
	s := b.await(pin.Digest, runtime.ImageFailed)
	for _, word := range []string{registry.Host, "You have reached your pull rate limit.", "UTC"} {
		if !strings.Contains(s.Reason, word) {
			t.Errorf("the reason lacks %q: %s", word, s.Reason)
		}
	}
	refuses := func(b *box) {
		t.Helper()
		for range 3 {
			_, err := b.Resolve(t.Context(), reference)
			refusal.Want(t, err, runtime.CodeClusterUnavailable, "")
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d requests were sent, want 1", n)
		}
	}
	refuses(b)
	b.stop()
	refuses(newBox(t, dir, nil))
}

func TestPausesOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		const into = 400 * time.Millisecond // each row begins so far into a second
		for _, test := range []struct {
			name   string
			status int
			header func() http.Header
			want   time.Duration // 0 means none
		}{
			{"429 without a time", 429, nil, usualPause},
			{"429 with seconds", 429, func() http.Header { return http.Header{"Retry-After": {"300"}} }, 300 * time.Second},
			{"429 with a date", 429, func() http.Header { return http.Header{"Retry-After": {in(time.Hour).UTC().Format(http.TimeFormat)}} }, time.Hour - into},
			{"429 with Docker Hub's time", 429, func() http.Header { return http.Header{"X-Retry-After": {fmt.Sprint(in(time.Hour).Unix())}} }, time.Hour - into},
			{"429 with a past date", 429, func() http.Header { return http.Header{"Retry-After": {"Sat, 02 Jan 1999 15:04:05 GMT"}} }, time.Second},
			{"429 with nonsense", 429, func() http.Header { return http.Header{"Retry-After": {"soon"}} }, usualPause},
			{"429 for a year", 429, func() http.Header { return http.Header{"Retry-After": {"31536000"}} }, longestPause},
			{"429 for longer than any number", 429, func() http.Header { return http.Header{"Retry-After": {"99999999999999999999"}} }, usualPause},
			{"503 with seconds", 503, func() http.Header { return http.Header{"Retry-After": {"20"}} }, 20 * time.Second},
			{"503 without a time", 503, nil, 0},
			{"200 with a time", 200, func() http.Header { return http.Header{"Retry-After": {"20"}} }, 0},
		} {
			time.Sleep(time.Until(in(time.Second).Truncate(time.Second).Add(into)))
			h := openPauses("")
			w := httptest.NewRecorder()
			answer := w.Result()
			answer.StatusCode, answer.Request = test.status, httptest.NewRequest(http.MethodGet, "https://registry.example.org/v2/", nil)
			if test.header != nil {
				answer.Header = test.header()
			}
			err := h.note("registry.example.org", answer)
			if (err != nil) != (test.want > 0) {
				t.Errorf("%s: %v", test.name, err)
			}
			if test.want == 0 {
				continue
			}
			if end := in(test.want + time.Second - 1).UTC().Format("15:04:05"); !strings.Contains(runtime.MessageOf(err), end) {
				t.Errorf("%s: got %s, want its end %s", test.name, runtime.MessageOf(err), end)
			}
			time.Sleep(test.want - 1)
			if err := h.check("registry.example.org"); err == nil {
				t.Errorf("%s: a request is sent too early", test.name)
			}
			if err := h.check("other.example.org"); err != nil {
				t.Errorf("%s: another host: %v", test.name, err)
			}
			time.Sleep(time.Nanosecond)
			if err := h.check("registry.example.org"); err != nil {
				t.Errorf("%s: after the pause: %v", test.name, err)
			}
		}
	})
}

// TestPausesAreFewAndMonotonic checks that a step of the wall clock moves no pause, also one of an earlier
// server, and that many hosts can't fill the memory.
func TestPausesAreFewAndMonotonic(t *testing.T) {
	dir := t.TempDir()
	h := openPauses(dir)
	for n := range maxPauses + 10 {
		answer := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {fmt.Sprint(3600 - n)}}, Body: http.NoBody}
		answer.Request = httptest.NewRequest(http.MethodGet, "https://registry.example.org/v2/", nil)
		if err := h.note(fmt.Sprint(n), answer); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
			t.Fatalf("got %v, want CLUSTER_UNAVAILABLE", err)
		}
	}
	for who, h := range map[string]*hostPauses{"this server": h, "the next server": openPauses(dir)} {
		if len(h.hosts) != maxPauses || h.check("0") == nil || h.check(fmt.Sprint(maxPauses)) != nil {
			t.Errorf("%s: got %d hosts, want the %d whose pauses end last", who, len(h.hosts), maxPauses)
		}
		for host, e := range h.hosts {
			if e.Until == e.Until.Round(0) { //nolint:staticcheck // Round removes the monotonic reading, which Equal ignores
				t.Fatalf("%s: the pause of %s follows the wall clock", who, host)
			}
		}
	}
}

func TestWordsOfRegistries(t *testing.T) {
	for _, test := range []struct{ name, kind, body, authorization, want string }{
		{"a registry", "application/json", `{"errors":[{"code":"X","message":"too many"}]}`, "", "too many"},
		{"a token service", "application/json", `{"details":"too many requests"}`, "Bearer abc", "too many requests"},
		{"plain text", "text/plain", "slow\n down\x00!", "", "slow down !"},
		{"a page", "text/html; charset=utf-8", "<html>", "", ""},
		{"a token", "text/plain", "token abcdef has too many", "Bearer abcdef", ""},
		{"a password", "text/plain", "anna with hunter2 has too many", "Basic YW5uYTpodW50ZXIy", ""},
		{"a name", "text/plain", "anna has too many", "Basic YW5uYTpodW50ZXIy", "anna has too many"},
		{"a novel", "text/plain", strings.Repeat("é", 9000), "", strings.Repeat("é", 300)},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", test.kind)
		fmt.Fprint(w, test.body)
		answer := w.Result()
		answer.Request = httptest.NewRequest(http.MethodGet, "https://registry.example.org/v2/", nil)
		if test.authorization != "" {
			answer.Request.Header.Set("Authorization", test.authorization)
		}
		if got := ownWords(answer); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
