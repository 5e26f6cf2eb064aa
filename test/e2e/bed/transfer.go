package bed

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/wait"
)

// UploadMutation uploads a file.
const UploadMutation = `mutation($runner: ID!, $path: String!, $file: Upload!) {
	uploadFile(runnerId: $runner, path: $path, file: $file) { file { path size mode owner group downloadUrl } } }`

type uploaded struct {
	UploadFile struct {
		File struct {
			Path, Mode, Owner, Group, DownloadURL string
			Size                                  int64
		}
	}
}

// UploadFile sends a file, which must work, and returns where it can be downloaded.
func (b Bed) UploadFile(t testing.TB, runner, path string, size int64, content io.Reader) string {
	t.Helper()
	var out uploaded
	if err := b.Upload(t.Context(), UploadMutation, object{"runner": runner, "path": path}, size, content, &out); err != nil {
		t.Fatalf("upload %s: %v", path, err)
	}
	if file := out.UploadFile.File; file.Mode != "0744" || file.Owner != "root" || file.Group != "root" || size >= 0 && file.Size != size {
		t.Errorf("uploaded %+v", file)
	}
	return out.UploadFile.File.DownloadURL
}

// Locate returns where a file can be downloaded.
func (b Bed) Locate(t testing.TB, runner, path string) (address *string) {
	t.Helper()
	var out struct {
		Runner struct{ File struct{ DownloadURL *string } }
	}
	b.Call(t, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path) { downloadUrl } } }`, object{"id": runner, "path": path}, &out)
	return out.Runner.File.DownloadURL
}

// Get asks for an address. What the body says too long or too short is err.
func (b Bed) Get(t testing.TB, method, address string, header ...string) (response *http.Response, body []byte, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.Address+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err = transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response, body, err
}

// DownloadFile gets the whole, which must work.
func (b Bed) DownloadFile(t testing.TB, address string) []byte {
	t.Helper()
	response, body, err := b.Get(t, "GET", address)
	if err != nil || response.StatusCode != 200 || response.ContentLength != int64(len(body)) {
		t.Fatalf("%s: %s, %d bytes of %d, %v", address, response.Status, len(body), response.ContentLength, err)
	}
	return body
}

// AgentOf returns the process of a runner's agent, in which nothing else runs.
func AgentOf(t testing.TB, cgroups, runner string) int {
	t.Helper()
	files := groupFiles(cgroups, runner)
	for _, path := range files {
		text, _ := os.ReadFile(path)
		if pids := strings.Fields(string(text)); len(pids) == 1 {
			if pid, err := strconv.Atoi(pids[0]); err == nil {
				return pid
			}
		}
	}
	t.Fatalf("the agent of %s wasn't found below %s: %q", runner, cgroups, files)
	return 0
}

// ForeignUploads sends what another site's page could: a form, and more where
// its browser doesn't ask first.
func (b Bed) ForeignUploads(t *testing.T, runner, path string) {
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
		t.Errorf("it was uploaded: %q", got)
	}
}

// CutUpload sends 3 MB of a file, waits until they have arrived in the runner,
// and hangs up.
func (b Bed) CutUpload(t *testing.T, runner, path string) {
	t.Helper()
	defer b.BeginUpload(t, runner, path, "Apollo-Require-Preflight: 1", strings.Repeat("new", 1<<20), 50<<20).Close()
	wait.For(t, "a part of the file is in the runner", func() bool {
		return strings.Contains(b.Shell(t, runner, "stat -c %s .rockpool-*").Stream("STDOUT"), "31")
	})
}

// BeginUpload sends a request of size more bytes than the content that it sends.
func (b Bed) BeginUpload(t *testing.T, runner, path, header, content string, size int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.Address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	operations := fmt.Sprintf(`{"query": "mutation($file: Upload!) { uploadFile(runnerId: \"%s\", path: \"%s\", file: $file) { file { path } } }", "variables": {"file": null}}`, runner, path)
	part := func(name, text string) string {
		return "--cut\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + text
	}
	body := part("operations", operations) + "\r\n" + part("map", `{"f": ["variables.file"]}`) + "\r\n" + part("f", content)
	_, err = fmt.Fprintf(conn, "POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=cut\r\nContent-Length: %d\r\n%s\r\n\r\n%s", len(body)+size, header, body)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// AtRest waits until each pool is full, and nothing starts or stops.
func (b Bed) AtRest(t testing.TB) {
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
