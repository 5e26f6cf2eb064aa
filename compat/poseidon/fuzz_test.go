package poseidon

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzRequests sends arbitrary requests to all routes. Each answer has the form of its status, and
// nothing panics.
func FuzzRequests(f *testing.F) {
	b := newBed(f, Options{LeastCPUMHz: 2000})
	runner := b.claim()
	methods := []string{"GET", "PUT", "POST", "PATCH", "DELETE"}
	paths := []string{
		"/health", "/version", "/statistics/execution-environments", "/execution-environments", "/execution-environments/2", "/runners",
		runner + "/files", runner + "/files/raw", runner + "/execute", runner + "/websocket",
	}
	for i, body := range []string{
		put, `{"executionEnvironmentId":1,"inactivityTimeout":-1}`, `{"delete":["./*","../x"],"copy":[{"path":"a/../../b/","content":"YQ=="},{"path":"\u0000"}]}`,
		`{"command":"$(x) '\"\\","environment":{"A":"b","CODEOCEAN":"no"},"timeLimit":1e3}`, "null", "[{}]", "\xff",
	} {
		f.Add(byte(i), byte(i), "path=../../etc&recursive=perhaps&fetch=1", body)
		f.Add(byte(2), byte(8), "executionID=x", body)
		f.Add(byte(3), byte(6), "", body)
		f.Add(byte(1), byte(4), "", body)
	}
	f.Fuzz(func(t *testing.T, method, path byte, query, body string) {
		r, err := http.NewRequestWithContext(t.Context(), methods[int(method)%len(methods)], b.url+paths[int(path)%len(paths)], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		r.Header.Set(TokenHeader, token)
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
		text := w.Body.String()
		switch {
		case w.Code == http.StatusMethodNotAllowed, w.Code == http.StatusNotFound && !strings.HasPrefix(text, "{"): // the router's
		case w.Code == http.StatusNoContent, w.Code == http.StatusCreated:
			if text != "" {
				t.Errorf("%d with %q, want \"\"", w.Code, text)
			}
		case w.Code == http.StatusOK:
			if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%q is no JSON", text)
			}
		default:
			var failure struct{ Message, ErrorCode string }
			if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil || failure.Message == "" || (failure.ErrorCode != "") != (w.Code >= 500) || failure.Message == "internal error" {
				t.Errorf("%s %s %q is answered with %d %s", r.Method, r.URL, body, w.Code, text)
			}
		}
	})
}
