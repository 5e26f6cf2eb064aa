package judge

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWrongURLsAreRefused(t *testing.T) {
	for _, address := range []string{"", "localhost:5050", "ftp://localhost", "http://"} {
		if _, err := Open(t.Context(), address); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// TestRun uses the answers of go-judge's documentation. `bench --against` uses the real one.
func TestRun(t *testing.T) {
	status, deleted, asked := "Accepted", false, map[string]any{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"buildVersion":"v1"}`) })
	mux.HandleFunc("POST /file", func(w http.ResponseWriter, r *http.Request) {
		if file, header, err := r.FormFile("file"); err != nil || header.Filename != "program" {
			t.Error(err)
		} else if text, _ := io.ReadAll(file); string(text) != "binary" {
			t.Errorf("%q", text)
		}
		_, _ = io.WriteString(w, `"ABC"`)
	})
	mux.HandleFunc("DELETE /file/ABC", func(http.ResponseWriter, *http.Request) { deleted = true })
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Cmd []map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Cmd) != 1 {
			t.Errorf("%v: %v", body, err)
			return
		}
		asked = body.Cmd[0]
		_, _ = io.WriteString(w, `[{"status":"`+status+`","exitStatus":0,"files":{"stdout":"1\n"}}]`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	j, err := Open(t.Context(), server.URL+"/")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	id, remove, err := j.Put(t.Context(), "program", []byte("binary"))
	if err != nil || id != "ABC" {
		t.Fatalf("%q, %v", id, err)
	}
	if err := j.Run(t.Context(), []string{"program"}, map[string]string{"program": id}); err != nil {
		t.Error(err)
	}
	copied, _ := json.Marshal(asked["copyIn"])
	if string(copied) != `{"program":{"fileId":"ABC"}}` {
		t.Errorf("copied in: %s", copied)
	}
	if err := remove(); err != nil || !deleted {
		t.Errorf("the file is still there: %v", err)
	}
	status = "Time Limit Exceeded"
	if err := j.Run(t.Context(), []string{"program"}, nil); err == nil || !strings.Contains(err.Error(), status) {
		t.Errorf("not accepted: got %v, want %s", err, status)
	}
}
