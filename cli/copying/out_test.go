package copying

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
)

func TestBaseInRunner(t *testing.T) {
	for from, want := range map[string]string{"": "workspace", ".": "workspace", "/": ".", "..": ".", "../..": ".", "a/..": "workspace", "/tmp/core": "core", "dir/": "dir"} {
		if got := baseInRunner(from); got != want {
			t.Errorf("%q: %q", from, got)
		}
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll(baseInRunner("/"), 0o777); err != nil {
		t.Error(err)
	}
	below, err := root.OpenRoot(baseInRunner("/"))
	if err != nil {
		t.Fatal(err)
	}
	_ = below.Close()
}

// A disk that is full isn't tried for a minute.
func TestDownloadEndsWhereItCannotBeWritten(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer server.Close()
	c := &Copier{Client: client.New(server.URL), progress: newProgress(io.Discard, true)}
	address := "/files/x"
	err := c.content(t.Context(), &client.DownloadableFile{DownloadUrl: &address}, full{}, io.Discard)
	if err == nil || client.Passing(err) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }
