package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
)

// TestASecondSignalSaysWhatIsLeft ends a program that is stopping: this test binary, run again.
func TestASecondSignalSaysWhatIsLeft(t *testing.T) {
	const stopping = "ROCKPOOL_TEST_ON_STOP"
	if onStop := os.Getenv(stopping); onStop != "" {
		ctx, _ := stopOnSignals(context.Background(), command.Streams{Err: os.Stderr}, time.Hour, 0, leftover(onStop))
		_, _ = fmt.Fprintln(os.Stdout, "serving")
		<-ctx.Done()
		_, _ = fmt.Fprintln(os.Stdout, "stopping")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for onStop, left := range map[string]string{config.StopRemoves: "keep running. To remove them, start the server again with --on-stop remove", config.StopKeeps: "the next start takes over"} {
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
		cmd.Env, cmd.Stderr = append(os.Environ(), stopping+"="+onStop), &errs
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewScanner(out)
		for _, line := range []string{"serving", "stopping"} {
			if !said.Scan() || said.Text() != line {
				t.Fatalf("%s: it ended before %s: %s", onStop, line, errs.String())
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != command.CodeOurs || !strings.Contains(errs.String(), "a second signal") || !strings.Contains(errs.String(), left) {
			t.Errorf("%s: exit %d: %s", onStop, code, errs.String())
		}
	}
}

// TestSignalsThatComeTogetherAreOne checks that a server, and a command with a server of its own, stop properly at
// SIGHUP. They also do so at several signals that come together, as from timeout(1) or a terminal that closes.
// Neither nohup(1) nor a service of systemd stops at SIGHUP. They are this test binary, run again.
func TestSignalsThatComeTogetherAreOne(t *testing.T) {
	const serving = "ROCKPOOL_TEST_SERVING"
	if what := os.Getenv(serving); what != "" {
		ctx, stop := command.Stoppable()
		if what == "server" {
			stop()
			ctx, stop = stopOnSignals(context.Background(), command.Streams{Err: os.Stderr}, time.Hour, time.Hour, "")
		}
		_, _ = fmt.Fprintln(os.Stdout, "serving")
		asked := make(chan struct{})
		go func() { // an empty line asks for the end
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			close(asked)
		}()
		select {
		case <-ctx.Done():
			_, _ = fmt.Fprintln(os.Stdout, "stopping")
		case <-asked:
			_, _ = fmt.Fprintln(os.Stdout, "still serving")
			return
		}
		<-asked
		stop()
		_, _ = fmt.Fprintln(os.Stdout, "stopped")
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		signals []syscall.Signal
		before  []string
		env     string
		only    string // "" means server and command
		want    string
	}{
		"timeout":         {signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, want: "stopping stopped"},
		"terminal closes": {signals: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, want: "stopping stopped"},
		"hang-up alone":   {signals: []syscall.Signal{syscall.SIGHUP}, want: "stopping stopped"},
		"nohup":           {signals: []syscall.Signal{syscall.SIGHUP}, before: []string{"nohup"}, want: "still serving"},
		"notify service":  {signals: []syscall.Signal{syscall.SIGHUP}, env: "NOTIFY_SOCKET=/nowhere", only: "server", want: "still serving"},
		"simple service":  {signals: []syscall.Signal{syscall.SIGHUP}, before: []string{"sh", "-c", `SYSTEMD_EXEC_PID=$$ exec "$0" "$@"`}, only: "server", want: "still serving"},
		"in a service's":  {signals: []syscall.Signal{syscall.SIGHUP}, env: "SYSTEMD_EXEC_PID=1", only: "server", want: "stopping stopped"},
	} {
		for _, what := range []string{"server", "command"} {
			if test.only != "" && test.only != what {
				continue
			}
			t.Run(what+" "+name, func(t *testing.T) {
				var errs bytes.Buffer
				line := slices.Concat([]string{"env", "--default-signal=HUP"}, test.before, []string{self, "-test.run=^TestSignalsThatComeTogetherAreOne$"})
				cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
				cmd.Env, cmd.Stderr = append(os.Environ(), serving+"="+what, test.env), &errs
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				said := bufio.NewScanner(out)
				if !said.Scan() {
					t.Fatal(errs.String())
				}
				// All signals are pending when the process continues.
				for _, signal := range slices.Concat([]syscall.Signal{syscall.SIGSTOP}, test.signals, []syscall.Signal{syscall.SIGCONT}) {
					if err := cmd.Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
				}
				var got []string
				if strings.HasPrefix(test.want, "stopping") && said.Scan() { // the end must come after the signals
					got = append(got, said.Text())
				}
				if _, err := in.Write([]byte("\n")); err != nil {
					t.Error(err)
				}
				for said.Scan() && said.Text() != "PASS" {
					got = append(got, said.Text())
				}
				if err := cmd.Wait(); err != nil || strings.Join(got, " ") != test.want {
					t.Errorf("it said %q and ended with %v: %s", got, err, errs.String())
				}
			})
		}
	}
}
