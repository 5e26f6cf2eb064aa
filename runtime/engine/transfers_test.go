package engine

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestOutputReportsLostBytes(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x := b.run(t, r.ID, "echo", "hello")
	read := func() (string, int64) {
		t.Helper()
		o, err := b.Executions.OpenOutput(asServer(t), x.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		text, err := io.ReadAll(o)
		if err != nil || int64(len(text)) != o.Size() {
			t.Errorf("%d bytes of %d, %v", len(text), o.Size(), err)
		}
		return string(text), o.Lost()
	}
	if text, lost := read(); text != "hello\n" || lost != 0 {
		t.Errorf("%q, %d lost", text, lost)
	}
	if err := os.Remove(b.logs.Path(x.ID)); err != nil {
		t.Fatal(err)
	}
	if text, lost := read(); text != "" || lost != 6 {
		t.Errorf("without its log: %q, %d lost", text, lost)
	}
	_, err := b.Executions.OpenOutput(asServer(t), "none", 0)
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
}

func TestTransfersOfAFile(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	room := int64(r.Environment.Resources.WorkspaceMiB) << 20
	file, err := b.Files.Upload(asServer(t), r.ID, "f", 0, false, -1, io.LimitReader(zeros{}, room))
	if err != nil || file.Size != room || file.Runner != r.ID || file.At != "f" {
		t.Fatalf("%+v, %v", file, err)
	}
	for _, size := range []int64{-1, room + 1} {
		_, err := b.Files.Upload(asServer(t), r.ID, "f", 0, false, size, io.LimitReader(zeros{}, room+1))
		refusal.Want(t, err, runtime.CodeInvalidInput, "file")
	}
	_, content, err := b.Files.OpenFile(asServer(t), r.ID, "f", room-3)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "\x00\x00\x00" {
		t.Errorf("the last three bytes: %q, %v", text, err)
	}
	for offset, field := range map[int64]string{-1: "offset", room + 1: "path"} {
		_, _, err := b.Files.OpenFile(asServer(t), r.ID, "f", offset)
		refusal.Want(t, err, runtime.CodeInvalidInput, field)
	}
	_, err = b.Files.Upload(asServer(t), r.ID, "f", 0, false, 5, strings.NewReader("abc"))
	refusal.Want(t, err, runtime.CodeInvalidInput, "file")
	_, _, err = b.Files.OpenFile(asServer(t), "none", "f", 0)
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
}

// TestATransferKeepsTheClaim checks that the claim is kept only until the transfer is closed.
func TestATransferKeepsTheClaim(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	var r runtime.Runner
	var content io.Closer
	wait.For(t, "a file is open before its runner's claim expires", func() bool {
		r = b.claimFor(t, "a", 1)
		if _, err := b.Files.Upload(asServer(t), r.ID, "f", 0, false, -1, strings.NewReader("abc")); err != nil {
			return false
		}
		var err error
		_, content, err = b.Files.OpenFile(asServer(t), r.ID, "f", 0)
		return err == nil
	})
	b.expired(t, "a", 1)
	if _, there := b.runnerIndex.get(r.ID); !there {
		t.Error("it expired while a file of it was open")
	}
	for range 2 { // the second one takes no other use away
		if err := content.Close(); err != nil {
			t.Error(err)
		}
	}
	wait.For(t, "its claim expires", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
}

// TestCompletedUploadNeverFails checks that, once the agent has put a file in place, no error is
// returned.
func TestCompletedUploadNeverFails(t *testing.T) {
	b, c, r := hostile(t, nil)
	c.agent.Store(nil)
	before := c.dials.Load()
	if file, err := b.Files.Upload(asServer(t), r.ID, "f", 0, false, -1, strings.NewReader("abc")); err != nil || file.Size != 3 || file.Path != "f" {
		t.Errorf("%+v, %v", file, err)
	}
	if dials := c.dials.Load() - before; dials != 1 {
		t.Errorf("%d streams for one upload, want 1", dials)
	}
	// A broken agent doesn't describe the file.
	broken := func(conn net.Conn) {
		defer conn.Close()
		frames := agent.NewFrameReader(conn, agent.AgentSide)
		for _, step := range []struct {
			asked, answer agent.Kind
			with          any
		}{
			{agent.KindRequest, agent.KindResponse, agent.Response{Protocol: agent.Protocol}},
			{agent.KindData, agent.KindUpdated, agent.Updated{Written: []string{"f"}}},
		} {
			if kind, _, err := frames.Next(); err != nil || kind != step.asked {
				t.Errorf("kind %d, %v", kind, err)
			}
			out, err := agent.AppendJSON(nil, step.answer, step.with)
			if _, failed := conn.Write(out); err != nil || failed != nil {
				t.Error(err, failed)
			}
		}
	}
	c.agent.Store(&broken)
	_, err := b.Files.Upload(asServer(t), r.ID, "f", 0, false, 3, strings.NewReader("abc"))
	refusal.Want(t, err, runtime.CodeClusterUnavailable, "", "a broken agent:")
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
