package life

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EExhaustedDescriptorsAreSurvived: clients take all descriptors that a server may have.
// It reports that to clients that it still serves, and is healthy again once the others left.
func TestE2EExhaustedDescriptorsAreSurvived(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL(), "http://"), "/graphql")
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	operator := dial()
	defer operator.Close()
	wait.For(t, "all is well", func() bool { return p.Health(t, operator).Status == "OK" })
	pid := p.Cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(len(open)) + 32, Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var crowd []net.Conn
	for range 64 {
		conn := dial()
		defer conn.Close()
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: rockpool\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, conn)
	}
	for _, part := range []string{"store", "output"} {
		wait.For(t, part+" is down", func() bool {
			status, message := p.Health(t, operator).Of(part)
			return status == "DOWN" && strings.Contains(message, unix.EMFILE.Error()) && strings.Contains(message, "LimitNOFILE")
		})
	}
	for _, conn := range crowd {
		_ = conn.Close()
	}
	wait.For(t, "all is well again", func() bool {
		return p.Health(t, operator).Status == "OK"
	})
	if r := p.Shell(t, p.ClaimUnreleased(t, "shell"), "echo well"); r.Stream("STDOUT") != "well\n" {
		t.Errorf("%+v", r)
	}
	// Removing all runners concurrently takes more descriptors.
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	p.Finish(t)
}

// TestE2ELostDatabaseKeepsOutput: somebody deletes or empties the database while no server runs.
// The output is kept, and the operator gets a message. The database's backup restores everything.
func TestE2ELostDatabaseKeepsOutput(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.ServeBinary(t, data)
	runner := p.ClaimUnreleased(t, "shell")
	logs := map[string][]byte{}
	var ids []string
	for i := range 5 {
		x := p.Shell(t, runner, fmt.Sprintf("echo result %d", i))
		ids = append(ids, x.Id)
	}
	p.End(t, syscall.SIGKILL, false)
	database := map[string][]byte{}
	for _, end := range []string{"", "-wal", "-shm"} {
		text, err := os.ReadFile(filepath.Join(data, "rockpool.db"+end))
		if err != nil {
			t.Fatal(err)
		}
		database[end] = text
	}
	for _, id := range ids {
		text, err := os.ReadFile(filepath.Join(data, "output", id[len(id)-2:], id))
		if err != nil {
			t.Fatal(err)
		}
		logs[id] = text
	}
	kept := func() (kept int) {
		t.Helper()
		err := filepath.WalkDir(filepath.Join(data, "output"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			want, ours := logs[entry.Name()]
			if !ours {
				return nil
			}
			text, err := os.ReadFile(path)
			if bytes.Equal(text, want) {
				kept++
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was just moved
			t.Fatal(err)
		}
		return kept
	}

	for _, lose := range []func(path string) error{os.Remove, func(path string) error { return os.Truncate(path, 0) }} {
		for end := range database {
			if err := lose(filepath.Join(data, "rockpool.db"+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		p = bed.ServeBinary(t, data)
		var out struct{ Health bed.PartsHealth }
		wait.For(t, "the operator gets a message", func() bool {
			p.Call(t, bed.HealthQuery, nil, &out)
			status, message := out.Health.Of("orphaned output")
			return status == "DEGRADED" && strings.Contains(message, " 5 logs (") && strings.Contains(message, "restore the database from its backup")
		})
		if n := kept(); n != len(logs) {
			t.Errorf("%d logs of %d are kept", n, len(logs))
		}
		wait.For(t, "the log says what to do", func() bool { return strings.Contains(p.Stderr.String(), "restore the database from its backup") })
		p.End(t, syscall.SIGKILL, false)
	}

	for end, text := range database {
		if err := os.WriteFile(filepath.Join(data, "rockpool.db"+end), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p = bed.ServeBinary(t, data)
	for i, id := range ids {
		if x := p.Await(t, id); x.Stream("STDOUT") != fmt.Sprintf("result %d\n", i) {
			t.Errorf("execution %d is %+v", i, x)
		}
	}
	// If somebody deletes output, it is reported as lost, with the cause.
	if err := os.Remove(filepath.Join(data, "output", ids[0][len(ids[0])-2:], ids[0])); err != nil {
		t.Fatal(err)
	}
	var page struct {
		Execution struct {
			Output struct {
				LostBytes int64
				LostCause string
			}
		}
	}
	p.Call(t, `query($id: ID!) { execution(id: $id) { output { lostBytes lostCause } } }`, object{"id": ids[0]}, &page)
	if lost := page.Execution.Output; lost.LostBytes != 9 || lost.LostCause != "DELETED" {
		t.Errorf("a page says %+v", lost)
	}
	p.Finish(t)
}
