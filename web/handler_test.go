package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rockpool/rockpool/test/need"
)

func packed(t *testing.T, text string) *fstest.MapFile {
	t.Helper()
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	if _, err := io.WriteString(writer, text); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: buffer.Bytes()}
}

func bundle(t *testing.T) map[string]file {
	t.Helper()
	all := fstest.MapFS{"README.md": {Data: []byte("not of the bundle")}}
	for name, text := range map[string]string{"index.html": "dashboard", "graphiql.html": "graphiql", "theme.js": "theme", "assets/a-1.js": "script", "assets/s-1.graphqls": "schema"} {
		all[name+".gz"] = packed(t, text)
		all[name+".br"] = &fstest.MapFile{Data: []byte("br of " + text)}
	}
	return files(all)
}

// over returns a handler that serves pages, and other requests with 418.
func over(pages Pages) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !pages.Serve(w, r) {
			w.WriteHeader(http.StatusTeapot)
		}
	})
}

func get(handler http.Handler, method, address string, header http.Header) *http.Response {
	request := httptest.NewRequest(method, address, nil)
	maps.Copy(request.Header, header)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var html = http.Header{"Accept": {"text/html,application/xhtml+xml,*/*;q=0.8"}}

func TestHandlerPassesOtherRequestsOn(t *testing.T) {
	h := over(Pages{bundle(t)})
	for _, test := range []struct {
		method, address string
		header          http.Header
		status          int
		body            string
	}{
		{"GET", "/", html, 200, "dashboard"},
		{"GET", "/", http.Header{"Accept": {"*/*"}}, 418, ""},
		{"GET", "/environments/a%2Fb?x", nil, 200, "dashboard"},
		{"GET", "/new-environment?from=a", nil, 200, "dashboard"},
		{"GET", "/executions", nil, 200, "dashboard"},
		{"GET", "/access/tokens", nil, 200, "dashboard"},
		{"GET", "/share/0199", nil, 200, "dashboard"},
		{"GET", "/graphiql", nil, 200, "graphiql"},
		{"GET", "/theme.js", nil, 200, "theme"},
		{"GET", "/assets/a-1.js", nil, 200, "script"},
		{"HEAD", "/assets/a-1.js", nil, 200, ""},
		{"GET", "/assets/nonesuch.js", nil, 404, "404 page not found\n"},
		{"GET", "/assets/../index.html", nil, 404, "404 page not found\n"},
		{"GET", "/graphql", html, 418, ""},
		{"GET", "/files/x", html, 418, ""},
		{"GET", "/environmentsx", html, 418, ""},
		{"GET", "/nonesuch", html, 418, ""},
		{"GET", "/README.md", html, 418, ""},
		{"POST", "/", html, 418, ""},
		{"OPTIONS", "/", html, 418, ""},
		{"POST", "/graphql", html, 418, ""},
		{"POST", "/environmentsx", html, 418, ""},
	} {
		response := get(h, test.method, test.address, test.header)
		if text := body(t, response); response.StatusCode != test.status || text != test.body {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.address, response.StatusCode, text, test.status, test.body)
		}
	}
}

// The dashboard's own addresses are only read; the answer to another method says so.
func TestHandlerRefusesOtherMethodsThanReading(t *testing.T) {
	h := over(Pages{bundle(t)})
	for _, address := range []string{"/executions", "/environments/a/b", "/graphiql", "/theme.js", "/assets/a-1.js", "/assets/nonesuch.js"} {
		for method, want := range map[string]int{"POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 204} {
			response := get(h, method, address, html)
			if allow := response.Header.Get("Allow"); response.StatusCode != want || allow != "GET, HEAD, OPTIONS" {
				t.Errorf("%s %s: %d, Allow %q, want %d", method, address, response.StatusCode, allow, want)
			}
		}
	}
}

func TestResponsesAreCompressedAsAccepted(t *testing.T) {
	h := over(Pages{bundle(t)})
	for accepted, want := range map[string]string{
		"gzip, deflate, br, zstd": "br",
		"gzip":                    "gzip",
		"br;q=0, GZIP;q=0.5":      "gzip",
		"br;q=x":                  "",
		"":                        "",
		"identity":                "",
	} {
		response := get(h, "GET", "/assets/a-1.js", http.Header{"Accept-Encoding": {accepted}})
		text := body(t, response)
		if want == "gzip" {
			plain, err := unpack([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			text = string(plain)
		}
		if want == "br" {
			text = strings.TrimPrefix(text, "br of ")
		}
		if response.Header.Get("Content-Encoding") != want || text != "script" || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %q, %q", accepted, response.Header.Get("Content-Encoding"), text)
		}
	}
}

func TestAssetsAreCachedAndPagesRevalidated(t *testing.T) {
	h := over(Pages{bundle(t)})
	asset, page := get(h, "GET", "/assets/a-1.js", nil), get(h, "GET", "/runners", nil)
	if c := asset.Header.Get("Cache-Control"); !strings.Contains(c, "immutable") {
		t.Errorf("an asset: %q", c)
	}
	if c := page.Header.Get("Cache-Control"); c != "no-cache" {
		t.Errorf("a page: %q", c)
	}
	tag := page.Header.Get("ETag")
	again := get(h, "GET", "/runners", http.Header{"If-None-Match": {tag}})
	if again.StatusCode != http.StatusNotModified || body(t, again) != "" || tag == asset.Header.Get("ETag") {
		t.Errorf("%d for %s", again.StatusCode, tag)
	}
}

// A page may run only scripts from the bundle.
func TestPoliciesForbidInlineScripts(t *testing.T) {
	h := over(Pages{bundle(t)})
	for address, strict := range map[string]bool{"/runners": true, "/graphiql": false} {
		header := get(h, "GET", address, nil).Header
		policy := header.Get("Content-Security-Policy")
		scripts := regexp.MustCompile(`script-src ([^;]*)`).FindStringSubmatch(policy)
		if !strings.HasPrefix(policy, "default-src 'none'") || len(scripts) != 2 || scripts[1] != "'self'" || !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "connect-src 'self';") {
			t.Errorf("%s: %q", address, policy)
		}
		if strings.Contains(policy, "unsafe") == strict {
			t.Errorf("%s: %q", address, policy)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" ||
			header.Get("Cross-Origin-Opener-Policy") != "same-origin" || !strings.Contains(header.Get("Permissions-Policy"), "camera=()") {
			t.Errorf("%s: %v", address, header)
		}
	}
}

func TestWithoutABuildPagesSayHowToBuild(t *testing.T) {
	h := over(Pages{})
	response := get(h, "GET", "/", html)
	if text := body(t, response); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "make build") {
		t.Errorf("%d %q", response.StatusCode, text)
	}
	if response := get(h, "GET", "/", nil); response.StatusCode != http.StatusTeapot {
		t.Errorf("for a program: %d", response.StatusCode)
	}
}

// The embedded pages have all their files, and no inline script or style.
func TestTheBundleIsWhole(t *testing.T) {
	need.Program(t)
	h := over(New())
	for _, address := range []string{"/executions", "/graphiql"} {
		response := get(h, "GET", address, nil)
		page := body(t, response)
		if response.StatusCode != http.StatusOK {
			t.Fatalf(`%s: %d: run "make build"`, address, response.StatusCode)
		}
		if regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style|\son\w+=|\sstyle=`).MatchString(page) {
			t.Errorf("%s has what its policy refuses: %s", address, page)
		}
		links := regexp.MustCompile(`(?:src|href)="(/[^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(links) < 3 {
			t.Errorf("%s has only %d links", address, len(links))
		}
		for _, link := range links {
			response := get(h, "GET", link[1], nil)
			if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") == "application/octet-stream" {
				t.Errorf("%s: %d %s", link[1], response.StatusCode, response.Header.Get("Content-Type"))
			}
		}
		if strings.Contains(page, "//") && regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).MatchString(page) {
			t.Errorf("%s loads from elsewhere: %s", address, page)
		}
	}
}
