package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/config"
)

// TestASecondSignalSaysWhatIsLeft ends a program that is stopping: this test binary, run again.
func TestASecondSignalSaysWhatIsLeft(t *testing.T) {
	const stopping = "ROCKPOOL_TEST_ON_STOP"
	if onStop := os.Getenv(stopping); onStop != "" {
		ctx, _ := stopOnSignals(context.Background(), cli.Streams{Err: os.Stderr}, time.Hour, leftover(onStop))
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
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			if !said.Scan() {
				t.Fatalf("%s: it ended before %s: %s", onStop, signal, errs.String())
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != cli.CodeOurs || !strings.Contains(errs.String(), "a second signal") || !strings.Contains(errs.String(), left) {
			t.Errorf("%s: exit %d: %s", onStop, code, errs.String())
		}
	}
}
