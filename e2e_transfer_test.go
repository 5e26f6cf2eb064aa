package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

const uploadMutation = `mutation($runner: ID!, $path: String!, $file: Upload!) {
	uploadFile(runnerId: $runner, path: $path, file: $file) { file { path size mode owner group downloadUrl } } }`

type uploaded struct {
	UploadFile struct {
		File struct {
			Path, Mode, Owner, Group, DownloadURL string
			Size                                  int64
		}
	}
}

// upload sends a file, which must work, and returns where it can be downloaded.
func (b bed) upload(t testing.TB, runner, path string, size int64, content io.Reader) string {
	t.Helper()
	var out uploaded
	if err := b.Upload(t.Context(), uploadMutation, object{"runner": runner, "path": path}, size, content, &out); err != nil {
		t.Fatalf("upload %s: %v", path, err)
	}
	if file := out.UploadFile.File; file.Mode != "0744" || file.Owner != "root" || file.Group != "root" || size >= 0 && file.Size != size {
		t.Errorf("uploaded %+v", file)
	}
	return out.UploadFile.File.DownloadURL
}

// locate returns where a file can be downloaded.
func (b bed) locate(t testing.TB, runner, path string) (address *string) {
	t.Helper()
	var out struct {
		Runner struct{ File struct{ DownloadURL *string } }
	}
	b.call(t, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path) { downloadUrl } } }`, object{"id": runner, "path": path}, &out)
	return out.Runner.File.DownloadURL
}

// get asks for an address. What the body says too long or too short is err.
func (b bed) get(t testing.TB, method, address string, header ...string) (response *http.Response, body []byte, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.url+address, nil)
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

// download gets the whole, which must work.
func (b bed) download(t testing.TB, address string) []byte {
	t.Helper()
	response, body, err := b.get(t, "GET", address)
	if err != nil || response.StatusCode != 200 || response.ContentLength != int64(len(body)) {
		t.Fatalf("%s: %s, %d bytes of %d, %v", address, response.Status, len(body), response.ContentLength, err)
	}
	return body
}

// peak returns the most memory that a process held since forgetPeak, in bytes. The
// kernel keeps the peak of all together; pages of files, which come and go with the
// page cache, are left out as they are now.
func peak(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib := func(name string) int64 {
		_, after, _ := strings.Cut(string(status), name+":")
		number, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	return (kib("VmHWM") - kib("RssFile")) << 10
}

func forgetPeak(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// agentOf returns the process of a runner's agent, in which nothing else runs.
func agentOf(t testing.TB, cgroups, runner string) int {
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

// TestE2ETransfersAreExactAndFlat carries 50 MB to a runner and back over HTTP,
// equal to the byte, and weighs bin/rockpool and the agent meanwhile. The
// addresses hold in the next server on the same data.
func TestE2ETransfersAreExactAndFlat(t *testing.T) {
	const size, allowed = 50 << 20, 16 << 20
	data := dataDir(t)
	p := serveBinary(t, data)
	p.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "large", "poolSize": 1, "resources": object{"workspaceMiB": 160, "memoryMiB": 384}}}, nil)
	runner := p.claimLoosely(t, "large")
	p.upload(t, runner, "warm", 5, strings.NewReader("warm\n"))
	server, agent := p.cmd.Process.Pid, agentOf(t, p.cgroups, runner)
	weigh := func(what string, carry func()) {
		t.Helper()
		forgetPeak(t, server)
		forgetPeak(t, agent)
		before, inside := peak(t, server), peak(t, agent)
		carry()
		more, moreInside := peak(t, server)-before, peak(t, agent)-inside
		t.Logf("%s: the server took %d KiB more (%d before), the agent %d KiB more (%d before)", what, more>>10, before>>10, moreInside>>10, inside>>10)
		if more > allowed || moreInside > allowed/4 {
			t.Errorf("%s: the server took %d MiB more, the agent %d MiB", what, more>>20, moreInside>>20)
		}
	}
	sum := sha256.New()
	var address string
	weigh("upload", func() {
		address = p.upload(t, runner, "dir/large", size, io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), sum))
	})
	weigh("upload of unknown length", func() {
		p.upload(t, runner, "dir/large", -1, io.LimitReader(rand.NewChaCha8([32]byte{}), size))
	})
	weigh("download", func() {
		back := sha256.New()
		content, promised, err := p.Download(t.Context(), address, 0)
		if err != nil || promised != size {
			t.Fatalf("%d bytes, %v", promised, err)
		}
		defer content.Close()
		if n, err := io.Copy(back, content); err != nil || n != size || !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
			t.Errorf("%d bytes came back, %v", n, err)
		}
	})
	var out struct{ Execution struct{ OutputURL string } }
	x := p.run(t, object{"runnerId": runner, "shell": "cat dir/large | head -c 8M; echo end >&2"})
	p.call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": x.ID}, &out)
	weigh("output", func() {
		if got := p.download(t, out.Execution.OutputURL); len(got) != 8<<20+4 {
			t.Errorf("%d bytes of output", len(got))
		}
	})
	p.end(t, syscall.SIGKILL, false)
	p = serveBinary(t, data)
	if got := p.download(t, out.Execution.OutputURL+"&stream=stderr"); string(got) != "end\n" {
		t.Errorf("after a restart: %q", got)
	}
	p.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
	if response, body, _ := p.get(t, "GET", address); response.StatusCode != 410 || !strings.Contains(string(body), `"RUNNER_GONE"`) {
		t.Errorf("a file of a runner that is gone: %s %s", response.Status, body)
	}
	p.end(t, syscall.SIGTERM, false)
	p.wantNothingLeft(t)
}

// TestE2EUploadsThatFail leave the old file, and nothing else.
func TestE2EUploadsThatFail(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	b.upload(t, runner, "kept", 3, strings.NewReader("old"))
	var refused *client.Error
	variables := object{"runner": runner, "path": "kept"}
	try := func(variables object, size int64) error {
		return b.Upload(t.Context(), uploadMutation, variables, size, io.LimitReader(rand.NewChaCha8([32]byte{}), size), nil)
	}
	// Four times as much is offered, and the answer comes all the same.
	if err := try(variables, 256<<20); !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeStorageFull || !strings.Contains(refused.Message, "64 MiB") {
		t.Errorf("more than the workspace holds: %v", err)
	}
	b.shell(t, runner, "head -c 60M /dev/zero > filler")
	if err := try(variables, 30<<20); !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeStorageFull {
		t.Errorf("into a full workspace: %v", err)
	}
	for path, want := range map[string]string{"/usr/x": "FILE_ERROR", "": "INVALID_INPUT path", "a\x00b": "INVALID_INPUT path", "kept/x": "FILE_ERROR", ".": "INVALID_INPUT path", strings.Repeat("x", 300): "INVALID_INPUT path"} {
		err := try(object{"runner": runner, "path": path}, 1<<20)
		if !errors.As(err, &refused) || strings.TrimSpace(string(refused.Extensions.Code)+" "+refused.Extensions.Field) != want {
			t.Errorf("%.10q: %v, want %s", path, err, want)
		}
	}
	if err := try(object{"runner": "none", "path": "x"}, 1<<20); !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeRunnerGone {
		t.Errorf("a runner that isn't there: %v", err)
	}
	b.shell(t, runner, "rm filler")
	b.foreignUploads(t, runner, "kept")
	b.cutUpload(t, runner, "kept")
	wait.For(t, "only the old file is there", func() bool {
		return b.shell(t, runner, "ls -A; cat kept").stream("STDOUT") == "kept\nold"
	})
}

// foreignUploads sends what another site's page could: a form, and more where
// its browser doesn't ask first.
func (b bed) foreignUploads(t *testing.T, runner, path string) {
	t.Helper()
	for _, header := range []string{
		"X-None: 1", "Apollo-Require-Preflight:", "Apollo-Require-Preflight: 1\r\nOrigin: https://evil.example.org",
		"Apollo-Require-Preflight: 1\r\nOrigin: null", "Apollo-Require-Preflight: 1\r\nSec-Fetch-Site: cross-site",
	} {
		conn := b.beginUpload(t, runner, path, header, "evil\r\n--cut--\r\n", 0)
		if answer, err := io.ReadAll(io.LimitReader(conn, 12)); err != nil || string(answer) != "HTTP/1.1 403" {
			t.Errorf("%q: %q, %v", header, answer, err)
		}
		conn.Close()
	}
	if got := b.shell(t, runner, "cat "+path).stream("STDOUT"); got != "old" {
		t.Errorf("it was uploaded: %q", got)
	}
}

// cutUpload sends 3 MB of a file, waits until they have arrived in the runner,
// and hangs up.
func (b bed) cutUpload(t *testing.T, runner, path string) {
	t.Helper()
	defer b.beginUpload(t, runner, path, "Apollo-Require-Preflight: 1", strings.Repeat("new", 1<<20), 50<<20).Close()
	wait.For(t, "a part of the file is in the runner", func() bool {
		return strings.Contains(b.shell(t, runner, "stat -c %s .rockpool-*").stream("STDOUT"), "31")
	})
}

// beginUpload sends a request of size more bytes than the content that it sends.
func (b bed) beginUpload(t *testing.T, runner, path, header, content string, size int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
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

// TestE2EUploadedFilesAreProtected: a user can't change a root-owned file in a
// sticky directory, and can in one of its own.
func TestE2EUploadedFilesAreProtected(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	b.call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`,
		object{"in": object{"runnerId": runner, "write": []object{{"path": "sticky", "directory": true, "mode": "1777"}}}}, nil)
	b.shell(t, runner, "mkdir own")
	for _, path := range []string{"top", "sticky/file", "own/file", "made/by/upload"} {
		b.upload(t, runner, path, 3, strings.NewReader("abc"))
	}
	got := b.shell(t, runner, `exec 2>/dev/null
		for f in top sticky/file made/by/upload; do
			rm -f $f || echo kept; mv $f $f.old || echo kept; (echo x >> $f) || echo kept; (true > $f) || echo kept; chmod 777 $f || echo kept; ln -sf /dev/null $f || echo kept; touch -d 2001-01-01 $f || echo kept
		done; cat top sticky/file made/by/upload; echo; stat -c '%a %U:%G' top sticky sticky/file made made/by own/file
		rm own/file && echo removed`)
	want := strings.Repeat("kept\n", 21) + "abcabcabc\n744 root:root\n1777 root:root\n744 root:root\n755 root:root\n755 root:root\n744 root:root\nremoved\n"
	if got.stream("STDOUT") != want {
		t.Errorf("%s", got.stream("STDOUT"))
	}
}

// TestE2EOnlyRegularFilesAreDownloaded names everything else, directly, through
// links, and by an address whose file has become something else.
func TestE2EOnlyRegularFilesAreDownloaded(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "python")
	secret := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.shell(t, runner, `mkfifo fifo; mkdir dir; ln -s target link; echo text > target; ln -s /etc etc; ln -s ../../../../../../etc/passwd up
		python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`)
	for path, regular := range map[string]bool{"fifo": false, "dir": false, "socket": false, "/dev/zero": false, "/dev": false, "target": true, "link": true, "etc/passwd": true, "up": true} {
		if address := b.locate(t, runner, path); (address != nil) != regular {
			t.Errorf("%s: address %v", path, address)
		}
	}
	// Links lead to the runner's own files, never the host's.
	inside := b.shell(t, runner, "cat /etc/passwd").stream("STDOUT")
	for path, want := range map[string]string{"link": "text\n", "etc/passwd": inside, "up": inside} {
		if got := string(b.download(t, *b.locate(t, runner, path))); got != want || got == "" {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	b.shell(t, runner, "mkdir -p swapped; echo text > swapped/file; echo text > file")
	address, inDirectory := *b.locate(t, runner, "file"), *b.locate(t, runner, "swapped/file")
	for _, become := range []string{
		"mkfifo file", "mkdir file", "ln -s /dev/zero file", "truncate -s 1T file", "ln -s " + secret + " file", "ln -s /proc/1/root" + secret + " file",
		"ln -s /proc/self/environ file", "ln -s file file", "ln -s /proc/kmsg file", "true",
	} {
		b.shell(t, runner, "rm -rf file; "+become)
		for _, method := range []string{"GET", "HEAD"} {
			response, body, err := b.get(t, method, address)
			if err != nil || response.StatusCode != 404 || method == "GET" && !strings.Contains(string(body), `"FILE_ERROR"`) {
				t.Errorf("%s, %s: %s %.200s, %v", become, method, response.Status, body, err)
			}
		}
	}
	b.shell(t, runner, "rm -r swapped; ln -s "+filepath.Dir(secret)+" swapped; ln -sf "+secret+" file")
	if response, body, _ := b.get(t, "GET", inDirectory); response.StatusCode != 404 || bytes.Contains(body, []byte("of the host")) {
		t.Errorf("through a directory that became a link: %s %s", response.Status, body)
	}
	// A path that is refused by its name is refused before it is signed.
	b.refused(t, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path) { downloadUrl } } }`, object{"id": runner, "path": ""}, runtime.CodeInvalidInput, "path")
}

// TestE2EDownloadsKeepTheirPromise: a file that changes while it is sent breaks
// the connection, or has what was promised; one that nobody reads any more is
// closed.
func TestE2EDownloadsKeepTheirPromise(t *testing.T) {
	b := e2e(t)
	b.put(t, object{"id": "promise", "poolSize": 1, "resources": object{"workspaceMiB": 100, "memoryMiB": 256}})
	runner := b.claim(t, "promise")
	agent := agentOf(t, e2eCgroups, runner)
	const size = 30 << 20
	open := func() int {
		n := 0
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", agent))
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.HasSuffix(target, "/big") {
				n++
			}
		}
		return n
	}
	// Unbuffered: what the server holds back, and the runner, is what is not read.
	begin := func(address string) (*http.Response, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		if err != nil || response.StatusCode != 200 || response.ContentLength != size {
			t.Fatalf("%+v, %v", response, err)
		}
		if _, err := io.CopyN(io.Discard, response.Body, 1<<20); err != nil {
			t.Fatal(err)
		}
		if open() == 0 {
			t.Fatal("the agent has sent all of it already, so this test shows nothing")
		}
		return response, cancel
	}
	for change, want := range map[string]error{"truncate -s 2M big": io.ErrUnexpectedEOF, "head -c 5M /dev/zero >> big": nil, "rm big": nil} {
		b.shell(t, runner, fmt.Sprintf("rm -f big; head -c %d /dev/zero > big", size))
		response, cancel := begin(*b.locate(t, runner, "big"))
		b.shell(t, runner, change)
		n, err := io.Copy(io.Discard, response.Body)
		if !errors.Is(err, want) || (err == nil) != (n+1<<20 == size) {
			t.Errorf("%s: %d bytes more, %v", change, n, err)
		}
		response.Body.Close()
		cancel()
	}
	b.shell(t, runner, fmt.Sprintf("head -c %d /dev/zero > big", size))
	response, cancel := begin(*b.locate(t, runner, "big"))
	cancel()
	response.Body.Close()
	wait.For(t, "the agent has closed the file", func() bool { return open() == 0 })
}

// TestE2ETransfersLeaveNothing repeats transfers, whole and cut, and counts
// what is open afterwards on both sides.
func TestE2ETransfersLeaveNothing(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	address := b.upload(t, runner, "file", 3<<20, bytes.NewReader(make([]byte, 3<<20)))
	b.shell(t, runner, "true")
	agent := agentOf(t, e2eCgroups, runner)
	open := func() (server, inside int) {
		ours, _ := filepath.Glob("/proc/self/fd/*")
		its, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", agent))
		return len(ours), len(its)
	}
	cycle := func() {
		b.upload(t, runner, "file", 1<<20, bytes.NewReader(make([]byte, 1<<20)))
		b.download(t, *b.locate(t, runner, "file"))
		b.beginUpload(t, runner, "file", "Apollo-Require-Preflight: 1", "cut", 1<<20).Close()
		content, _, err := b.Download(t.Context(), address, 5)
		if err != nil {
			t.Fatal(err)
		}
		content.Close()
	}
	cycle()
	b.CloseIdle()
	b.atRest(t) // what comes later isn't left
	server, inside := open()
	for range 100 {
		cycle()
	}
	b.CloseIdle()
	wait.For(t, "as many files are open as before", func() bool {
		now, nowInside := open()
		return now <= server && nowInside <= inside
	})
	wait.For(t, "only the file is in the runner", func() bool { // the agent may have just seen the last cut
		return b.shell(t, runner, "ls -A").stream("STDOUT") == "file\n"
	})
}

// atRest waits until each pool is full, and nothing starts or stops.
func (b bed) atRest(t testing.TB) {
	t.Helper()
	wait.For(t, "all pools are at rest", func() bool {
		var out struct {
			Environments []struct {
				Pool struct{ Size, Idle, Starting, Stopping int }
			}
		}
		b.call(t, `{ environments { pool { size idle starting stopping } } }`, nil, &out)
		for _, e := range out.Environments {
			if p := e.Pool; p.Idle != p.Size || p.Starting+p.Stopping > 0 {
				return false
			}
		}
		return true
	})
}
