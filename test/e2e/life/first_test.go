package life

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// A firstAnswer is the first answer that a retrying client got.
type firstAnswer struct {
	environments []string
	err          error
}

// retryUntilAnswered requests the environments until the server answers. It calls asked when a
// request was written.
func retryUntilAnswered(ctx context.Context, c *client.Client, asked func()) firstAnswer {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			asked()
		}
	}})
	for {
		var out struct {
			Environments []struct{ ID string }
		}
		err := c.Do(ctx, `{ environments { id } }`, nil, &out)
		var refused *client.Error
		if err != nil && !errors.As(err, &refused) && ctx.Err() == nil {
			continue // nothing listens yet
		}
		answer := firstAnswer{err: err}
		for _, env := range out.Environments {
			answer.environments = append(answer.environments, env.ID)
		}
		return answer
	}
}

// TestE2EFirstAnswerKnowsTheFirstEnvironments: a client sends requests since before a first start.
// Its first answer has all environments of that start. The test delays their storing until the
// client has sent its request and, if the server serves already, until it got its answer.
func TestE2EFirstAnswerKnowsTheFirstEnvironments(t *testing.T) {
	need.Sandboxes(t)
	settings := bed.Settings(t.TempDir(), bed.Cgroups)
	settings.CgroupParent = fmt.Sprintf("rockpool/e2e-first-%d", os.Getpid())
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	log := new(bed.KeptLog)
	bed.Explain(t, log)
	srv := server.New(settings, log.Logger())
	srv.Socket = filepath.Join(sandboxtest.OpenDir(t), "s") // an address that is known before the start
	first, err := server.FirstEnvironments()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, env := range first {
		want = append(want, string(env.ID))
	}
	slices.Sort(want)
	var opened atomic.Bool
	asked, answered := make(chan struct{}), make(chan struct{})
	srv.First = func() ([]runtime.Environment, error) {
		<-asked
		if opened.Load() {
			<-answered
		}
		return first, nil
	}

	ctx, end := context.WithCancel(context.Background())
	c, got := srv.Client(), make(chan firstAnswer, 1)
	var once sync.Once
	go func() {
		answer := retryUntilAnswered(ctx, c, func() { once.Do(func() { close(asked) }) })
		close(answered)
		got <- answer
	}()
	err = srv.Open(t.Context())
	opened.Store(true)
	if err != nil {
		end()
		<-got
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(running) }()
	t.Cleanup(func() {
		end()
		stop()
		err := <-ended
		c.CloseIdle()
		if left := bed.Leftovers(settings.Data, settings.CgroupParent); err != nil || len(left) > 0 {
			t.Errorf("the server ended with %v and left %q", err, left)
		}
	})
	answer := wait.Receive(t, got, "the first answer")
	if answer.err != nil || len(want) == 0 || !slices.Equal(answer.environments, want) {
		t.Errorf("the first answer is %q, %v; the first environments are %q", answer.environments, answer.err, want)
	}
}
