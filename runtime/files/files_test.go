package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// unreachable is a runner that can't be used, or whose agent can't be dialled.
type unreachable struct {
	use, dial error
	uses      int // now
}

func (u *unreachable) Runner(id runtime.RunnerID) (runtime.Runner, bool) {
	tenant, _, _ := strings.Cut(string(id), "/")
	return runtime.Runner{ID: id, State: runtime.RunnerClaimed, Environment: runtime.Environment{Resources: runtime.Resources{WorkspaceMiB: 1}}, Claim: runtime.Claim{Epoch: 1, ClaimedAt: time.Now(), Tenant: runtime.TenantID(tenant)}}, true
}

func (u *unreachable) Use(context.Context, runtime.RunnerID) (func(), error) {
	if u.use != nil {
		return nil, u.use
	}
	u.uses++
	return func() { u.uses-- }, nil
}

func (u *unreachable) Dial(context.Context, runtime.RunnerID) (net.Conn, error) { return nil, u.dial }

// TestUnreachableAgentIsUnavailable checks that an error of the dial is reported as
// CLUSTER_UNAVAILABLE, and earlier errors unchanged.
func TestUnreachableAgentIsUnavailable(t *testing.T) {
	cause := errors.New("a cause")
	calls := map[string]func(a *Access) error{
		"list": func(a *Access) error { _, err := a.Files(t.Context(), "r", "", false); return err },
		"open": func(a *Access) error { _, _, err := a.OpenFile(t.Context(), "r", "f", 0); return err },
		"update": func(a *Access) error {
			_, err := a.UpdateFiles(t.Context(), "r", "write", Update{Delete: []string{"f"}})
			return err
		},
	}
	for name, call := range calls {
		if err := call(New(&unreachable{use: cause}, nil)); !errors.Is(err, cause) || runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			t.Errorf("%s, before the agent was asked: %v", name, err)
		}
		u := &unreachable{dial: cause}
		if err := call(New(u, nil)); !errors.Is(err, cause) || runtime.CodeOf(err) != runtime.CodeClusterUnavailable || u.uses != 0 {
			t.Errorf("%s, with an agent that can't be reached: %v, %d uses stay", name, err, u.uses)
		}
	}
}

// A lister is a runner with many files.
type lister struct{ silent }

func (l *lister) Dial(context.Context, runtime.RunnerID) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _, _ = agent.NewFrameReader(theirs, agent.AgentSide).Next()
		frames, _ := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Protocol: agent.Protocol})
		for i := range 10_000 {
			frames, _ = agent.AppendJSON(frames, agent.KindFile, agent.FileInfo{Path: fmt.Appendf(nil, "%0200d", i), Type: "file"})
		}
		_, _ = theirs.Write(agent.AppendFrame(frames, agent.KindEnd, nil))
	}()
	return ours, nil
}

// TestListsHaveTheirShareOfMemory lists until a tenant's memory is used up, and ends the first request.
func TestListsHaveTheirShareOfMemory(t *testing.T) {
	memory := quota.NewMemory(32 << 20)
	a := New(&lister{}, memory)
	list := func(ctx context.Context) error {
		files, err := a.Files(ctx, "r", "", true)
		if err == nil && len(files) != 10_000 {
			t.Errorf("%d files are listed", len(files))
		}
		return err
	}
	first, end := context.WithCancel(t.Context())
	if err := list(first); err != nil {
		t.Fatal(err)
	}
	one, _ := memory.Usage()
	for range (16 << 20) / one {
		if err := list(t.Context()); err != nil && runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
			t.Error(err)
		}
	}
	if err := list(t.Context()); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("beyond the share: got %v, want QUOTA_EXCEEDED", err)
	}
	if now, _ := memory.Usage(); now%one != 0 {
		t.Error("a refused list keeps memory")
	}
	full, _ := memory.Usage()
	end()
	wait.For(t, "the first list's memory is freed", func() bool { now, _ := memory.Usage(); return now == full-one })
}

// TestUploadsFailForTheirOwnReason: a content that stalls, and so ends its request's context, and one
// that never fits.
func TestUploadsFailForTheirOwnReason(t *testing.T) {
	agents := &silent{}
	agents.answers.Store(true)
	a := New(agents, nil)
	stalled := runtime.Errorf(runtime.CodeLimitExceeded, "the request stalled")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := a.UploadFile(ctx, "r", "f", 0, false, -1, reader(func([]byte) (int, error) { cancel(); return 0, stalled }))
	if !errors.Is(err, stalled) {
		t.Errorf("a stalled content: got %v, want %v", err, stalled)
	}
	large := make([]byte, 1<<20+1)
	_, err = a.UploadFile(t.Context(), "r", "f", 0, false, -1, bytes.NewReader(large))
	refusal.Want(t, err, runtime.CodeInvalidInput, "file", "a large file:")
	_, err = a.UpdateFiles(t.Context(), "r", "write", Update{Write: []runtime.FileWrite{{Path: "ok"}, {Path: "f", Data: large}}})
	refusal.Want(t, err, runtime.CodeInvalidInput, "write.1", "a large write:")
}

// A reader is a function as an io.Reader.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
