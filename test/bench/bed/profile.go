package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
)

// freeAddress returns an unused address on loopback. If something else takes it before the server
// does, the server reports that.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// profileSeconds is the duration of a CPU profile, from the row's first round. The row waits for
// its end.
const profileSeconds = 10

// Profile starts a CPU profile of the row's server, if the bench takes profiles. The returned
// function waits for it.
func (b *Bed) Profile(ctx context.Context) (wait func()) {
	if b.Profiles == "" {
		return func() {}
	}
	file := filepath.Join(b.Profiles, strings.ReplaceAll(b.Name, "/", "-")+".pprof")
	var group sync.WaitGroup
	if len(b.servers) == 0 { // the engine runs in this process
		out, err := os.Create(file)
		if err == nil {
			err = pprof.StartCPUProfile(out)
		}
		if err != nil {
			_, _ = fmt.Fprintf(b.Progress, "    no profile: %v\n", err)
		}
		return func() {
			pprof.StopCPUProfile()
			_ = out.Close()
		}
	}
	group.Go(func() {
		url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.servers[0].profiles, profileSeconds)
		if err := fetch(ctx, url, file); err != nil {
			_, _ = fmt.Fprintf(b.Progress, "    no profile: %v\n", err)
		}
	})
	return group.Wait
}

// fetch downloads a URL to a file.
func fetch(ctx context.Context, url, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, response.Body)
	return errors.Join(err, out.Close())
}
