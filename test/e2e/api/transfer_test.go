package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// peak returns the peak of a process's memory since forgetPeak, in bytes. The kernel records one
// peak for all kinds of memory. Pages of files depend on the page cache, so their current size is
// subtracted.
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

// TestE2ETransfersAreExactAndFlat transfers 50 MB to a runner and back over HTTP, compares every
// byte, and measures the memory of bin/rockpool and the agent. The next server on the same data
// accepts the same URLs.
func TestE2ETransfersAreExactAndFlat(t *testing.T) {
	need.Machine(t)
	const size, allowed = 50 << 20, 16 << 20
	data := bed.DataDir(t)
	p := bed.ServeBinary(t, data)
	p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "large", "poolSize": 1, "resources": object{"workspaceMiB": 160, "memoryMiB": 384}}}, nil)
	runner := p.ClaimUnreleased(t, "large")
	p.UploadFile(t, runner, "warm", 5, strings.NewReader("warm\n"))
	server, agent := p.Cmd.Process.Pid, bed.AgentOf(t, p.Cgroups, runner)
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
		address = p.UploadFile(t, runner, "dir/large", size, io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), sum))
	})
	weigh("upload of unknown length", func() {
		p.UploadFile(t, runner, "dir/large", -1, io.LimitReader(rand.NewChaCha8([32]byte{}), size))
	})
	weigh("download", func() {
		back := sha256.New()
		content, promised, err := p.Download(t.Context(), address, 0)
		if err != nil || promised != size {
			t.Fatalf("%d bytes, %v", promised, err)
		}
		defer content.Close()
		if n, err := io.Copy(back, content); err != nil || n != size || !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
			t.Errorf("got %d bytes back, %v", n, err)
		}
	})
	var out struct{ Execution struct{ OutputURL string } }
	x := p.Run(t, object{"runnerId": runner, "shell": "cat dir/large | head -c 8M; echo end >&2"})
	p.Call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": x.Id}, &out)
	weigh("output", func() {
		if got := downloadFile(t, p.Bed, out.Execution.OutputURL); len(got) != 8<<20+4 {
			t.Errorf("%d bytes of output", len(got))
		}
	})
	p.End(t, syscall.SIGKILL, false)
	p = bed.ServeBinary(t, data)
	if got := downloadFile(t, p.Bed, out.Execution.OutputURL+"&stream=stderr"); string(got) != "end\n" {
		t.Errorf("after a restart: %q", got)
	}
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
	if response, body, _ := p.Get(t, "GET", address); response.StatusCode != 410 || !strings.Contains(string(body), `"RUNNER_GONE"`) {
		t.Errorf("a file of a runner that is gone: %s %s", response.Status, body)
	}
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}

// TestE2EFailedUploadKeepsTheOldFile, and leaves nothing else.
func TestE2EFailedUploadKeepsTheOldFile(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.UploadFile(t, runner, "kept", 3, strings.NewReader("old"))
	var refused *client.Error
	variables := object{"runner": runner, "path": "kept"}
	try := func(variables object, size int64) error {
		return b.Upload(t.Context(), bed.UploadMutation, variables, size, io.LimitReader(rand.NewChaCha8([32]byte{}), size), nil)
	}
	// The client offers four times as much, and still gets the answer.
	if err := try(variables, 256<<20); !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeInvalidInput || refused.Extensions.Retryable || !strings.Contains(refused.Message, "64 MiB") {
		t.Errorf("more than the workspace holds: got %v, want INVALID_INPUT that names 64 MiB", err)
	}
	b.Shell(t, runner, "head -c 60M /dev/zero > filler")
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
		t.Errorf("an unknown runner: %v", err)
	}
	b.Shell(t, runner, "rm filler")
	foreignUploads(t, b, runner, "kept")
	cutUpload(t, b, runner, "kept")
	wait.For(t, "only the old file is left", func() bool {
		return b.Shell(t, runner, "ls -A; cat kept").Stream("STDOUT") == "kept\nold"
	})
}

// TestE2EProtectedFiles: a user can't change or replace a protected file, also in a directory that the
// user made before.
func TestE2EProtectedFiles(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Shell(t, runner, "mkdir own")
	write := []object{{"path": "sticky", "directory": true, "mode": "1777"}}
	for _, path := range []string{"top", "sticky/file", "own/file", "made/by/upload"} {
		write = append(write, object{"path": path, "text": "abc"})
	}
	b.Call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, object{"in": object{"runnerId": runner, "write": write, "protected": true}}, nil)
	got := b.Shell(t, runner, `exec 2>/dev/null
		for f in top sticky/file made/by/upload own/file; do
			rm -f $f || echo kept; mv $f $f.old || echo kept; (echo x >> $f) || echo kept; (true > $f) || echo kept; chmod 777 $f || echo kept; ln -sf /dev/null $f || echo kept; touch -d 2001-01-01 $f || echo kept
		done; mv own other || echo kept; cat top sticky/file made/by/upload own/file; echo; stat -c '%a %U:%G' top sticky sticky/file made made/by own own/file`)
	want := strings.Repeat("kept\n", 29) + "abcabcabcabc\n644 root:root\n1777 root:root\n644 root:root\n" + strings.Repeat("1777 root:root\n", 3) + "644 root:root\n"
	if got.Stream("STDOUT") != want {
		t.Errorf("%s", got.Stream("STDOUT"))
	}
}

// TestE2EOnlyRegularFilesAreDownloaded requests everything else: directly, through links, and by a
// URL whose file was replaced.
func TestE2EOnlyRegularFilesAreDownloaded(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	secret := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Shell(t, runner, `mkfifo fifo; mkdir dir; ln -s target link; echo text > target; ln -s /etc etc; ln -s ../../../../../../etc/passwd up
		python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`)
	for path, regular := range map[string]bool{"fifo": false, "dir": false, "socket": false, "/dev/zero": false, "/dev": false, "target": true, "link": true, "etc/passwd": true, "up": true} {
		if address := locate(t, b, runner, path); (address != nil) != regular {
			t.Errorf("%s: address %v", path, address)
		}
	}
	// Links lead to the runner's own files, never the host's.
	inside := b.Shell(t, runner, "cat /etc/passwd").Stream("STDOUT")
	for path, want := range map[string]string{"link": "text\n", "etc/passwd": inside, "up": inside} {
		if got := string(downloadFile(t, b, *locate(t, b, runner, path))); got != want || got == "" {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	b.Shell(t, runner, "mkdir -p swapped; echo text > swapped/file; echo text > file")
	address, inDirectory := *locate(t, b, runner, "file"), *locate(t, b, runner, "swapped/file")
	for _, become := range []string{
		"mkfifo file", "mkdir file", "ln -s /dev/zero file", "truncate -s 1T file", "ln -s " + secret + " file", "ln -s /proc/1/root" + secret + " file",
		"ln -s /proc/self/environ file", "ln -s file file", "ln -s /proc/kmsg file", "true",
	} {
		b.Shell(t, runner, "rm -rf file; "+become)
		for _, method := range []string{"GET", "HEAD"} {
			response, body, err := b.Get(t, method, address)
			if err != nil || response.StatusCode != 404 || method == "GET" && !strings.Contains(string(body), `"FILE_ERROR"`) {
				t.Errorf("%s, %s: %s %.200s, %v", become, method, response.Status, body, err)
			}
		}
	}
	b.Shell(t, runner, "rm -r swapped; ln -s "+filepath.Dir(secret)+" swapped; ln -sf "+secret+" file")
	if response, body, _ := b.Get(t, "GET", inDirectory); response.StatusCode != 404 || bytes.Contains(body, []byte("of the host")) {
		t.Errorf("through a directory that became a link: %s %s", response.Status, body)
	}
	// A path with a wrong name is refused before its URL is signed.
	b.Refused(t, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path) { downloadUrl } } }`, object{"id": runner, "path": ""}, runtime.CodeInvalidInput, "path")
}

// TestE2EDownloadIsCompleteOrFails: if a file changes while it is sent, the client gets all
// promised bytes, or the connection breaks. A file whose client has left is closed.
func TestE2EDownloadIsCompleteOrFails(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "promise", "poolSize": 1, "resources": object{"workspaceMiB": 100, "memoryMiB": 256}})
	runner := b.Claim(t, "promise")
	agent := bed.AgentOf(t, bed.Cgroups, runner)
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
	// Without buffers here, all unread bytes are held back by the server and the runner.
	begin := func(address string) (*http.Response, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Address+address, nil)
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
		b.Shell(t, runner, fmt.Sprintf("rm -f big; head -c %d /dev/zero > big", size))
		response, cancel := begin(*locate(t, b, runner, "big"))
		b.Shell(t, runner, change)
		n, err := io.Copy(io.Discard, response.Body)
		if !errors.Is(err, want) || (err == nil) != (n+1<<20 == size) {
			t.Errorf("%s: %d bytes more, %v", change, n, err)
		}
		response.Body.Close()
		cancel()
	}
	b.Shell(t, runner, fmt.Sprintf("head -c %d /dev/zero > big", size))
	response, cancel := begin(*locate(t, b, runner, "big"))
	cancel()
	response.Body.Close()
	wait.For(t, "the agent has closed the file", func() bool { return open() == 0 })
}

// TestE2ETransfersLeaveNothing repeats transfers, complete and cut, and counts open files on both
// sides afterwards.
func TestE2ETransfersLeaveNothing(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	address := b.UploadFile(t, runner, "file", 3<<20, bytes.NewReader(make([]byte, 3<<20)))
	b.Shell(t, runner, "true")
	agent := bed.AgentOf(t, bed.Cgroups, runner)
	open := func() (server, inside int) {
		ours, _ := filepath.Glob("/proc/self/fd/*")
		its, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", agent))
		return len(ours), len(its)
	}
	cycle := func() {
		b.UploadFile(t, runner, "file", 1<<20, bytes.NewReader(make([]byte, 1<<20)))
		downloadFile(t, b, *locate(t, b, runner, "file"))
		b.BeginUpload(t, runner, "file", "Apollo-Require-Preflight: 1", "cut", 1<<20).Close()
		content, _, err := b.Download(t.Context(), address, 5)
		if err != nil {
			t.Fatal(err)
		}
		content.Close()
	}
	cycle()
	b.CloseIdle()
	atRest(t, b) // later releases aren't leaks
	server, inside := open()
	for range 100 {
		cycle()
	}
	b.CloseIdle()
	wait.For(t, "as many files are open as before", func() bool {
		now, nowInside := open()
		return now <= server && nowInside <= inside
	})
	wait.For(t, "only the file is in the runner", func() bool { // the agent may only just have noticed the last cut
		return b.Shell(t, runner, "ls -A").Stream("STDOUT") == "file\n"
	})
}
