// Package floors is a process that does the least that a server must do for the same request, for
// comparison. It is a separate process so that row and floor both pay for the communication between
// two processes.
package floors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/test/commandline"
)

// A Process runs this program with --serve-floors.
type Process struct {
	URL   string
	cmd   *exec.Cmd
	stdin io.Closer // its end ends the process, even if this one is killed
}

// Start starts the process, and returns once it serves.
func Start(ctx context.Context) (*Process, error) {
	f := &Process{cmd: exec.Command("/proc/self/exe", "--serve-floors")}
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f.cmd.Env = commandline.Environment("ROCKPOOL_")
	f.cmd.Stderr = os.Stderr
	stdin, err := f.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	f.stdin = stdin
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if f.URL = strings.TrimSpace(line); err != nil || ctx.Err() != nil {
		f.Stop()
		return nil, errors.Join(err, ctx.Err())
	}
	return f, nil
}

// Stop ends the process.
func (f *Process) Stop() {
	_ = f.stdin.Close()
	_ = f.cmd.Wait() // its result doesn't matter
}

// Serve serves the floors on loopback, writes their address to out, and returns when in ends.
func Serve(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	file, err := os.CreateTemp("", "rockpool-bench-floor-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	mux := http.NewServeMux()
	mux.Handle("POST /append", &appender{file: file})
	mux.HandleFunc("GET /socket", serveSocket)
	mux.HandleFunc("GET /idle", serveIdle)
	mux.Handle("GET /pace", &pacer{})
	mux.HandleFunc("PUT /upload", serveUpload)
	mux.HandleFunc("GET /download", serveDownload)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// PID returns its process id.
func (f *Process) PID() int { return f.cmd.Process.Pid }
