package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startDocker starts a Docker daemon for the tests, without networks, and makes Image from the
// tests' root file system.
func (n *Nomad) startDocker(ctx context.Context) error {
	daemon, err := exec.LookPath("dockerd")
	if err != nil {
		return fmt.Errorf("%w: apt-get install docker.io", err)
	}
	n.docker = &process{binary: daemon, log: n.path("docker.log"), mercy: syscall.SIGTERM, args: []string{
		"--data-root", n.path("docker"), "--exec-root", n.path("docker-run"), "--pidfile", n.path("docker.pid"),
		"--host", n.dockerHost(), "--cgroup-parent", "/" + filepath.Base(n.dir),
		"--iptables=false", "--ip6tables=false", "--bridge=none",
	}}
	if err := n.docker.start(); err != nil {
		return err
	}
	if err := n.dockerReady(ctx); err != nil {
		text, _ := os.ReadFile(n.docker.log)
		return fmt.Errorf("%w\n%s", err, text)
	}
	// Holds the network of a group. Nomad's own image would have to be pulled.
	pause := n.dockerCommand(ctx, "import", "--change", `ENTRYPOINT ["/bin/sleep", "2147483647"]`, "-", pauseImage)
	return errors.Join(
		n.load(ctx, n.dockerCommand(ctx, "import", "-", Image)), n.load(ctx, pause),
		n.load(ctx, n.dockerCommand(ctx, "import", "-", BareImage), "--exclude=./usr/bin/sh"),
		n.load(ctx, n.dockerCommand(ctx, "import", "--change", "ENV PATH=/opt/tool/bin:/usr/bin:/bin GREETING=hello LANG=de_DE.UTF-8 HOME=/home/image",
			"--change", "WORKDIR /srv/app", "--change", "USER runner", "--change", "VOLUME /data", "-", ConfiguredImage)),
	)
}

// pauseImage holds the networks of groups of containers.
const pauseImage = "rockpool-test-pause:1"

// load sends the tests' root file system to a command of Docker as a tar archive with these
// options.
func (n *Nomad) load(ctx context.Context, load *exec.Cmd, options ...string) (err error) {
	pack := exec.CommandContext(ctx, "tar", append(options, "-C", n.root(), "-c", ".")...)
	if load.Stdin, err = pack.StdoutPipe(); err != nil {
		return err
	}
	if err := pack.Start(); err != nil {
		return err
	}
	out, err := load.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker import: %w: %s", err, out)
	}
	return errors.Join(err, pack.Wait())
}

// dockerReady waits until the daemon answers, at most for patience. It returns an error when the
// daemon ends.
func (n *Nomad) dockerReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := n.dockerCommand(ctx, "version").CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-n.docker.ended:
			return fmt.Errorf("dockerd ended: %w", n.docker.err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", err, out)
		case <-tick.C:
		}
	}
}

// stopDocker stops the daemon and its containers.
func (n *Nomad) stopDocker() error {
	if n.docker.ended == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	left, err := n.containers(ctx)
	if err == nil && len(left) > 0 {
		// It fails if Nomad's client removes a container at the same time. Containers that are left count.
		out, removing := n.dockerCommand(ctx, append([]string{"rm", "-f"}, left...)...).CombinedOutput()
		if left, err = n.containers(ctx); err == nil && len(left) > 0 {
			err = fmt.Errorf("containers that are left: %v: %w: %s", left, removing, out)
		}
	}
	return errors.Join(err, n.docker.signal(syscall.SIGTERM))
}

// containers returns the ids of all containers.
func (n *Nomad) containers(ctx context.Context) ([]string, error) {
	out, err := n.dockerCommand(ctx, "ps", "-aq").Output()
	return strings.Fields(string(out)), err
}

// dockerCommand returns a command for this Nomad's own daemon, not for the machine's.
func (n *Nomad) dockerCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"--host", n.dockerHost()}, args...)...)
	cmd.Env = environment
	return cmd
}

// dockerHost returns the address of this Nomad's own daemon.
func (n *Nomad) dockerHost() string { return "unix://" + n.path("docker.sock") }
