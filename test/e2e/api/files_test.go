package api

import (
	"io"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// locate returns a file's download URL.
func locate(t testing.TB, b bed.Bed, runner, path string) (address *string) {
	t.Helper()
	var out struct {
		Runner struct{ File struct{ DownloadURL *string } }
	}
	b.Call(t, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path, followLinks: true) { downloadUrl } } }`, object{"id": runner, "path": path}, &out)
	return out.Runner.File.DownloadURL
}

// downloadFile downloads the whole file, which must succeed.
func downloadFile(t testing.TB, b bed.Bed, address string) []byte {
	t.Helper()
	response, body, err := b.Get(t, "GET", address)
	if err != nil || response.StatusCode != 200 || response.ContentLength != int64(len(body)) {
		t.Fatalf("%s: %s, %d bytes of %d, %v", address, response.Status, len(body), response.ContentLength, err)
	}
	return body
}

// foreignUploads sends requests that another site's page could send: a form, and others that
// browsers send without a preflight.
func foreignUploads(t *testing.T, b bed.Bed, runner, path string) {
	t.Helper()
	for _, header := range []string{
		"X-None: 1", "Apollo-Require-Preflight:", "Apollo-Require-Preflight: 1\r\nOrigin: https://evil.example.org",
		"Apollo-Require-Preflight: 1\r\nOrigin: null", "Apollo-Require-Preflight: 1\r\nSec-Fetch-Site: cross-site",
	} {
		conn := b.BeginUpload(t, runner, path, header, "evil\r\n--cut--\r\n", 0)
		if answer, err := io.ReadAll(io.LimitReader(conn, 12)); err != nil || string(answer) != "HTTP/1.1 403" {
			t.Errorf("%q: %q, %v", header, answer, err)
		}
		conn.Close()
	}
	if got := b.Shell(t, runner, "cat "+path).Stream("STDOUT"); got != "old" {
		t.Errorf("it was uploaded: got %q, want \"old\"", got)
	}
}

// cutUpload sends 3 MB of a file, waits until they have arrived in the runner, and closes the
// connection.
func cutUpload(t *testing.T, b bed.Bed, runner, path string) {
	t.Helper()
	defer b.BeginUpload(t, runner, path, "Apollo-Require-Preflight: 1", strings.Repeat("new", 1<<20), 50<<20).Close()
	wait.For(t, "a part of the file is in the runner", func() bool {
		return strings.Contains(b.Shell(t, runner, "stat -c %s .rockpool-*").Stream("STDOUT"), "31")
	})
}

// atRest waits until each pool is full, and nothing starts or stops.
func atRest(t testing.TB, b bed.Bed) {
	t.Helper()
	wait.For(t, "all pools are at rest", func() bool {
		var out struct {
			Environments []struct {
				Pool struct{ Size, Idle, Starting, Stopping int }
			}
		}
		b.Call(t, `{ environments { pool { size idle starting stopping } } }`, nil, &out)
		for _, e := range out.Environments {
			if p := e.Pool; p.Idle != p.Size || p.Starting+p.Stopping > 0 {
				return false
			}
		}
		return true
	})
}
