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
)

// UploadMutation uploads a file.
const UploadMutation = `mutation($runner: ID!, $path: String!, $file: Upload!) {
	uploadFile(runnerId: $runner, path: $path, file: $file) { file { path size mode owner group downloadUrl } } }`

type uploadResult struct {
	UploadFile struct {
		File struct {
			Path, Mode, Owner, Group, DownloadURL string
			Size                                  int64
		}
	}
}

// UploadFile uploads a file, which must succeed, and returns its download URL.
func (b Bed) UploadFile(t testing.TB, runner, path string, size int64, content io.Reader) string {
	t.Helper()
	var out uploadResult
	if err := b.Upload(t.Context(), UploadMutation, object{"runner": runner, "path": path}, size, content, &out); err != nil {
		t.Fatalf("upload %s: %v", path, err)
	}
	if file := out.UploadFile.File; file.Mode != "0644" || file.Owner != "runner" || file.Group != "runner" || size >= 0 && file.Size != size {
		t.Errorf("uploaded %+v", file)
	}
	return out.UploadFile.File.DownloadURL
}

// Get requests a URL. err is the error of reading the body, for example of one that ends too early.
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

// AgentOf returns the process of a runner's agent. No other process may run in the runner.
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

// BeginUpload sends the beginning of a request whose content is size bytes longer than what it
// sends.
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
