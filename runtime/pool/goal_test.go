package pool

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
)

// imageBed is a pool of an environment with images, whose status the test sets.
type imageBed struct {
	*Pool
	t    *testing.T
	fake *clustertest.Fake

	mu     sync.Mutex // guards all below
	images map[string]runtime.ImageStatus
	asked  func(digest string) // called by the loop; nil means not
}

func newImageBed(t *testing.T, env runtime.Environment) *imageBed {
	b := &imageBed{t: t, fake: clustertest.NewFake(), images: map[string]runtime.ImageStatus{}}
	b.Pool = New(env, nil, Options{
		Cluster: b.fake, Logger: zap.NewNop(), Observe: func(runtime.Runner) {},
		Ending: func(context.Context, runtime.Runner) error { return nil },
		Image: func(pin runtime.ImagePin) runtime.ImageStatus {
			b.mu.Lock()
			status, asked := b.images[pin.Digest], b.asked
			b.mu.Unlock()
			if asked != nil {
				asked(pin.Digest)
			}
			return status
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = b.Run(ctx) })
	group.Go(func() { _ = b.fake.Watch(ctx, func(runtime.EnvironmentID) { b.Hint() }) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestFirstStatusHasTheImage checks the image's status before the pool runs.
func TestFirstStatusHasTheImage(t *testing.T) {
	p := New(revision(1, "one", nil), nil, Options{Image: func(pin runtime.ImagePin) runtime.ImageStatus {
		return runtime.ImageStatus{Digest: pin.Digest, State: runtime.ImagePulling}
	}})
	if s := p.Status(); s.Image.Digest != "one" || s.Image.State != runtime.ImagePulling {
		t.Errorf("%+v", s)
	}
}

func (b *imageBed) is(digest string, state runtime.ImageState, reason string) {
	b.mu.Lock()
	b.images[digest] = runtime.ImageStatus{Digest: digest, State: state, Reason: reason}
	b.mu.Unlock()
	b.Hint()
	settle(time.Second)
}

// made fails the test unless the runners are of these revisions.
func (b *imageBed) made(revision, idle int) {
	b.t.Helper()
	runners, err := b.fake.Runners(b.t.Context(), "")
	if err != nil || len(runners) != idle {
		b.t.Errorf("%d runners (%v), not %d", len(runners), err, idle)
	}
	for _, r := range runners {
		if r.Environment.Revision != revision || r.Environment.Previous != nil {
			b.t.Errorf("a runner of revision %d, not %d", r.Environment.Revision, revision)
		}
	}
}

func revision(n int, digest string, previous *runtime.Environment) runtime.Environment {
	return runtime.Environment{ID: "a", Revision: n, RunnerRevision: n, PoolSize: 2, Pin: runtime.ImagePin{Digest: digest}, Previous: previous}
}

// TestNoRunnerBeforeItsImage checks that nothing is started before the first image is there.
func TestNoRunnerBeforeItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newImageBed(t, revision(1, "one", nil))
		b.is("one", runtime.ImagePulling, "")
		b.made(0, 0)
		if s := b.Status(); s.Image.State != runtime.ImagePulling || s.Reason == "" {
			t.Errorf("%+v", s)
		}
		b.is("one", runtime.ImageFailed, "no such thing")
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable || !strings.Contains(err.Error(), "no such thing") {
			t.Errorf("a claim: %v", err)
		}
		claimed := make(chan error, 1)
		go func() {
			_, err := b.Claim(t.Context(), Claim{WaitFor: time.Hour})
			claimed <- err
		}()
		settle(time.Minute)
		b.made(0, 0)
		b.is("one", runtime.ImageReady, "")
		if err := <-claimed; err != nil {
			t.Errorf("what waited: %v", err)
		}
		settle(time.Second)
		if s := b.Status(); s.Reason != "" || s.Idle != 2 || s.Claimed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestPreviousRevisionIsServed checks that the previous revision is served, and can grow, until the
// new image is there.
func TestPreviousRevisionIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := revision(1, "one", nil)
		b := newImageBed(t, first)
		b.is("one", runtime.ImageReady, "")
		b.made(1, 2)
		next := revision(2, "two", &first)
		next.PoolSize = 4
		goOn, asks := make(chan struct{}), 0
		b.mu.Lock()
		b.images["two"] = runtime.ImageStatus{Digest: "two", State: runtime.ImagePulling}
		b.asked = func(string) {
			if asks++; asks == 2 { // the loop continues slowly
				<-goOn
			}
		}
		b.mu.Unlock()
		if err := b.SetEnvironment(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := b.Status(); s.Revision != 2 || s.Size != 4 || s.Image.Digest != "two" || s.Image.State != runtime.ImagePulling {
			t.Errorf("right after the change: %+v", s)
		}
		close(goOn)
		b.is("two", runtime.ImagePulling, "")
		b.made(1, 4)
		b.is("two", runtime.ImageFailed, "no such thing")
		b.made(1, 4)
		r, err := b.Claim(t.Context(), Claim{})
		if err != nil || r.Environment.Revision != 1 {
			t.Errorf("%+v %v", r, err)
		}
		if s := b.Status(); s.Reason != "" || s.Image.Reason != "no such thing" || s.Revision != 2 {
			t.Errorf("%+v", s)
		}
		if _, err := b.Release(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
		settle(time.Second)
		b.made(1, 4)
		other := next // whose tenant has runners of its own, also of the revision before
		other.Tenant, other.Revision = "t", 3
		if err := b.SetEnvironment(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		b.made(1, 4)
		if runners, err := b.fake.Runners(t.Context(), ""); err != nil || slices.ContainsFunc(runners, func(r runtime.Runner) bool { return r.Environment.Tenant != "t" }) {
			t.Errorf("%+v, %v", runners, err)
		}
		b.is("two", runtime.ImageReady, "")
		settle(time.Second)
		b.made(3, 4)
	})
}
