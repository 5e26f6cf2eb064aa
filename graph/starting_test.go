package graph

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestStartingServerServesOnlyItsHealth(t *testing.T) {
	started := make(chan struct{})
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, bedOptions{site: site{Started: started}})
	if code, _ := b.send(`{ health { status } version }`, nil, nil); code != nil {
		t.Errorf("health: %v", code)
	}
	answered := make(chan any, 1)
	go func() {
		code, _ := b.send(`{ environments { id } }`, nil, nil)
		answered <- code
	}()
	if code, _ := b.send(`{ health { status } }`, nil, nil); code != nil {
		t.Errorf("health: %v", code)
	}
	select {
	case early := <-answered: // it has waited for startingPatience
		if early != string(runtime.CodeClusterUnavailable) {
			t.Errorf("an answer before the start: %v", early)
		}
		answered <- early
	default:
	}
	close(started)
	// It waited for the start, or for startingPatience.
	if code := wait.Receive(t, answered, "an answer"); code != nil && code != string(runtime.CodeClusterUnavailable) {
		t.Errorf("a request that waited: %v", code)
	}
	if code, _ := b.send(`{ environments { id } }`, nil, nil); code != nil {
		t.Errorf("after the start: %v", code)
	}
}

// A standby is a cluster that waits.
type standby struct{ *clustertest.Fake }

func (standby) Status(context.Context) (runtime.ClusterStatus, error) {
	return runtime.ClusterStatus{Problems: []runtime.Problem{{Subject: "lock", Message: "another server owns it"}}}, nil
}

func TestProbesSayWhetherTheServerIsReady(t *testing.T) {
	started := make(chan struct{})
	fake := clustertest.NewFake()
	b := newBedWith(t, standby{fake}, fake, bedOptions{site: site{Started: started}, Token: "correct-horse-battery"})
	probe := func(path, token string, code int, says string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if response.Body.Close(); err != nil || response.StatusCode != code || string(body) != says+"\n" {
			t.Errorf("%s: %s %q %v", path, response.Status, body, err)
		}
	}
	waits := "the server is starting: it waits for its cluster"
	probe("/health/live", "", http.StatusOK, "live")
	probe("/health/ready", "", http.StatusServiceUnavailable, waits)
	probe("/health/ready", "wrong", http.StatusServiceUnavailable, waits)
	probe("/health/ready", "correct-horse-battery", http.StatusServiceUnavailable, waits+"\nlock: another server owns it")
	close(started)
	probe("/health/ready", "", http.StatusOK, "ready")
}
