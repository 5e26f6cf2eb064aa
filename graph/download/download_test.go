package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/identity"
)

// nobody is Callers without any credential.
type nobody struct{}

func (nobody) Shown(*http.Request) (identity.Caller, bool, error) {
	return identity.Caller{}, false, nil
}
func (nobody) ByID(string) (identity.Caller, error) { return identity.Caller{}, nil }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func code(err error) runtime.Code {
	if err == nil {
		return ""
	}
	return runtime.CodeOf(err)
}

func TestAddressesAreValidForTheirLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := NewLinks(bytes.Repeat([]byte{1}, KeySize))
		address, err := url.Parse(links.File(access.Principal{}, runtime.File{Runner: "r", At: "a b&c=\n\xff"}))
		if err != nil {
			t.Fatal(err)
		}
		query := address.Query()
		check := func(links *Links) error { return links.check(query, "file", "r", query.Get("path")) }
		if query.Get("path") != "a b&c=\n\xff" || address.Path != "/files/r" {
			t.Errorf("%v", address)
		}
		time.Sleep(Life - time.Second)
		if err := errors.Join(check(links), check(NewLinks(bytes.Repeat([]byte{1}, KeySize)))); err != nil {
			t.Errorf("just before its end: %v", err)
		}
		for _, other := range []*Links{NewLinks(nil), NewLinks(nil), NewLinks(bytes.Repeat([]byte{2}, KeySize)), NewLinks([]byte{1})} {
			if err := check(other); code(err) != runtime.CodeForbidden || errors.Is(err, errExpired) {
				t.Errorf("with another key: %v", err)
			}
		}
		if err := links.check(query, "output", "r", query.Get("path")); code(err) != runtime.CodeForbidden {
			t.Errorf("for something else: %v", err)
		}
		time.Sleep(time.Second)
		if err := check(links); !errors.Is(err, errExpired) {
			t.Errorf("after its end: got %v, want %v", err, errExpired)
		}
	})
}

// An expired address is refused with 410, and the message says how to get another.
func TestExpiredAddressesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := NewLinks(nil)
		mux := http.NewServeMux()
		Handler{Links: links, Files: &source{versions: []string{"text"}}, Callers: nobody{}, Refuse: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
			http.Error(w, err.Error(), status)
		}}.Register(mux)
		address := links.File(access.Principal{}, runtime.File{Runner: "r", At: "f"})
		get := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
			return w
		}
		time.Sleep(Life - time.Second)
		if w := get(); w.Code != http.StatusOK || w.Body.String() != "text" {
			t.Errorf("just before its end: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		if w := get(); w.Code != http.StatusGone || !strings.Contains(w.Body.String(), "File.downloadUrl") {
			t.Errorf("after its end: %d %s", w.Code, w.Body)
		}
	})
}

// FuzzDisposition checks that a client gets any name, and that no name adds a header or a
// parameter.
func FuzzDisposition(f *testing.F) {
	for _, seed := range []string{"", "plain.txt", `"; filename=evil`, "a\r\nSet-Cookie: x", "日本 ünï", "\xff", "50%", `\`, "a'b", "../x", "\x00\x7f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		value := disposition("attachment", name)
		kind, params, err := mime.ParseMediaType(value)
		if err != nil || kind != "attachment" || params["filename"] != strings.ToValidUTF8(name, "\uFFFD") || len(params) != 1 {
			t.Fatalf("%q became %q: %v, %v", name, value, params, err)
		}
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				t.Fatalf("%q has a byte %#x", value, c)
			}
		}
		if !utf8.ValidString(value) {
			t.Fatal(value)
		}
	})
}

// source has one file. Each opening returns its next version.
type source struct {
	versions []string
	cut      int // bytes that each version lacks of its announced size
	opened   int
	closed   int
	err      error
}

func (s *source) OpenFile(_ context.Context, _ runtime.RunnerID, _ string, offset int64) (runtime.File, io.ReadCloser, error) {
	if s.err != nil {
		return runtime.File{}, nil, s.err
	}
	text := s.versions[min(s.opened, len(s.versions)-1)]
	s.opened++
	file := runtime.File{Size: int64(len(text)), ModifiedAt: time.Unix(int64(len(text)), 0)}
	return file, &stream{strings.NewReader(text[offset : len(text)-s.cut]), s}, nil
}

func (s *source) OpenOutput(context.Context, runtime.ExecutionID, runtime.Stream) (*executions.Output, error) {
	return nil, s.err
}

type stream struct {
	*strings.Reader
	source *source
}

func (s *stream) Close() error { s.source.closed++; return nil }

// get requests a file of the source.
func (s *source) get(t *testing.T, ranged string) (status int, body string, err error) {
	t.Helper()
	links := NewLinks(nil)
	mux := http.NewServeMux()
	Handler{Links: links, Files: s, Outputs: s, Callers: nobody{}, Refuse: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
		http.Error(w, fmt.Sprint(runtime.CodeOf(err)), status)
	}}.Register(mux)
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, address := range []string{links.File(access.Principal{}, runtime.File{Runner: "r", At: "f"}), links.Output(access.Principal{}, "x")} {
		if s.err == nil && strings.HasPrefix(address, "/outputs") {
			break
		}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+address, nil)
		if ranged != "" {
			request.Header.Set("Range", ranged)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, "", err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return response.StatusCode, string(text), err
		}
		status, body = response.StatusCode, string(text)
	}
	return status, body, nil
}

func TestDownloadsAreCompleteOrBreak(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	for name, test := range map[string]struct {
		source source
		ranged string
		want   string // "" means the connection breaks
		opened int
	}{
		"whole":                 {source{versions: []string{long}}, "", long, 1},
		"from its beginning":    {source{versions: []string{long}}, "bytes=0-9", long[:10], 1},
		"part":                  {source{versions: []string{long}}, "bytes=999990-", long[999_990:], 2},
		"cut":                   {source{versions: []string{long}, cut: 10}, "", "", 1},
		"short and cut":         {source{versions: []string{"0123456789"}, cut: 1}, "", "", 1},
		"cut after the part":    {source{versions: []string{long}, cut: 10}, "bytes=5-9", long[5:10], 2},
		"another version":       {source{versions: []string{long, long + "x"}}, "bytes=5-9", "", 2},
		"many ranges, one file": {source{versions: []string{"0123456789"}}, "bytes=0-1,3-4", "0123456789", 1},
	} {
		_, got, err := test.source.get(t, test.ranged)
		if (err == nil) != (test.want != "") || err == nil && got != test.want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if test.source.opened != test.opened || test.source.closed != test.opened {
			t.Errorf("%s: opened %d times, closed %d times", name, test.source.opened, test.source.closed)
		}
	}
}

// Every range that can't be served is refused with the size of the content.
func TestRefusedRangesNameTheSize(t *testing.T) {
	links, mux := NewLinks(nil), http.NewServeMux()
	Handler{Links: links, Files: &source{versions: []string{"0123456789"}}, Callers: nobody{}, Refuse: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
		http.Error(w, err.Error(), status)
	}}.Register(mux)
	for _, wanted := range []string{"lines=0-1", "bytes=9-5", "bytes=10-", "bytes=x"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, links.File(access.Principal{}, runtime.File{Runner: "r", At: "f"}), nil)
		r.Header.Set("Range", wanted)
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusRequestedRangeNotSatisfiable || w.Header().Get("Content-Range") != "bytes */10" {
			t.Errorf("%s: got %d %v %s, want 416 for 10 bytes", wanted, w.Code, w.Header(), w.Body)
		}
	}
}

func TestRefusalsHaveTheirStatus(t *testing.T) {
	for code, want := range map[runtime.Code]int{
		runtime.CodeRunnerGone: 410, runtime.CodeExecutionNotFound: 404, runtime.CodeFileError: 404, runtime.CodeInvalidInput: 400,
		runtime.CodeConflict: 409, runtime.CodeClusterUnavailable: 503, runtime.CodeLimitExceeded: 429, runtime.CodeInternal: 500,
	} {
		s := source{err: runtime.Errorf(code, "no")}
		if status, body, err := s.get(t, ""); err != nil || status != want || strings.TrimSpace(body) != string(code) {
			t.Errorf("%s: %d %q, %v", code, status, body, err)
		}
	}
}
