package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

// networkAccess is the name of the finding about it.
const networkAccess = "network access"

// runApart runs this command again in an empty network namespace, in which there
// is nobody who could be harmed, and returns its exit code.
func (c *Command) runApart(ctx context.Context, out, errs io.Writer) (int, error) {
	args := []string{"doctor", "--apart", "--isolation", c.Isolation}
	for flag, value := range map[string]string{"--data": c.Data, "--config": c.Config} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	for flag, given := range map[string]bool{"--attack": c.Attack, "--json": c.JSON || !c.Attack} {
		if given {
			args = append(args, flag)
		}
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = out, errs
	// In a group of its own, since a terminal's ^C would be its second signal, and end it at once.
	// It doesn't outlive this process, or rather the thread that starts it.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // it cleans up
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, fmt.Errorf("a network namespace: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// examineNetwork finds out whether runners can have a network here: by one that
// has, in a network namespace that leads nowhere.
func (c *Command) examineNetwork(ctx context.Context) []finding.Finding {
	var out, errs bytes.Buffer
	code, err := c.runApart(ctx, &out, &errs)
	var told struct{ Findings []finding.Finding }
	if err == nil && json.Unmarshal(out.Bytes(), &told) != nil {
		err = fmt.Errorf("the try ended with exit code %d: %s", code, strings.TrimSpace(errs.String()))
	}
	if err != nil {
		return []finding.Finding{noNetwork(err)}
	}
	return told.Findings
}

// Kernel modules that a runner's network is made of.
const networkModules = "veth, nf_tables, nft_fib_netdev, nft_reject_netdev, nft_connlimit, nft_masq and sch_tbf"

func noNetwork(err error) finding.Finding {
	return finding.Warning(networkAccess, "programs get no network until this is put right (settings network…); the kernel needs the modules "+networkModules+", which some distributions have in a package of extra modules, and this try needs iproute2",
		"a runner can't be given a network: %v", err)
}

// probeNetwork is what is done apart: one runner with a network.
func (c *Command) probeNetwork(ctx context.Context, settings config.Config) (found []finding.Finding) {
	around, err := OfferWorld(ctx, &settings)
	if err != nil {
		return []finding.Finding{noNetwork(err)}
	}
	defer func() { _ = around.Close() }()
	say := func(format string, args ...any) {
		found = append(found, finding.Warning(networkAccess, "it goes by itself with the next doctor or private run", format, args...))
	}
	err = private.Run(ctx, settings, zap.NewNop(), say, func(ctx context.Context, srv *server.Server) error {
		found = append(found, tryNetwork(ctx, srv))
		return nil
	})
	if err != nil {
		found = append(found, noNetwork(err))
	}
	if left := RunnersLinks(); len(left) > 0 {
		found = append(found, finding.Failure(networkAccess, "report it with the output of rockpool doctor --json", "of a runner that was removed there is still %s", strings.Join(left, ", ")))
	}
	return found
}

// RunnersLinks returns the runners' links in this network namespace.
func RunnersLinks() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		if strings.HasPrefix(i.Name, network.LinkPrefix) {
			names = append(names, "link "+i.Name)
		}
	}
	return names
}

// OfferWorld makes the world of this process's network namespace, and has a server with
// these settings offer it.
func OfferWorld(ctx context.Context, settings *config.Config) (*world.World, error) {
	if err := raiseLoopback(); err != nil {
		return nil, err
	}
	around, err := world.New(ctx)
	if err != nil {
		return nil, err
	}
	settings.Network = true
	networks := config.Default().Networks
	networks.Resolver, networks.Address, networks.Ports = []string{around.Names}, "0.0.0.0", fmt.Sprintf("%d-%d", attack.MappedFirst, attack.MappedLast)
	settings.Networks = networks
	return around, nil
}

// raiseLoopback raises the loopback of this process's network namespace, which
// needs no program for it.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// tryNetwork gives a runner of the server a network, and has a program in it find
// out what it reaches: that the kernel took link, filter and bandwidth and told
// them again, is what the server makes sure of before.
func tryNetwork(ctx context.Context, srv *server.Server) finding.Finding {
	reached := srv.Client()
	defer reached.CloseIdle()
	const environment = "doctor-network"
	input := client.PutEnvironmentInput{
		Id: environment, PoolSize: new(int), Network: &client.NetworkInput{Access: new(true), ExposedPorts: []int{8000}},
		Resources: &client.ResourcesInput{MemoryMiB: pointer(doctorMemoryMiB), Processes: pointer(doctorProcesses), CpuMHz: pointer(doctorCPUMHz)},
	}
	if err := client.Put(ctx, reached, input); err != nil {
		return noNetwork(err)
	}
	defer func() { _ = client.Delete(ctx, reached, environment) }() // it goes with the server, too
	p := patient{client: reached}
	var err error
	if p.runner, _, err = p.claim(ctx, environment); err != nil {
		out, why := client.GetPool(ctx, reached, environment)
		if why == nil {
			why = errors.New(out.Environment.Pool.Reason)
		}
		return noNetwork(errors.Join(err, why))
	}
	program, err := attack.Prober()
	if err == nil {
		err = reached.UploadFile(ctx, p.runner, "prober", "0755", int64(len(program)), bytes.NewReader(program))
	}
	if err != nil {
		return noNetwork(err)
	}
	denied := []string{world.LAN4, world.LAN6, world.Metadata, world.Machine4, world.Machine6}
	script := []string{"./prober", "ask"}
	for _, to := range append([]string{world.Public4, world.Public6}, denied...) {
		script = append(script, "tcp/"+net.JoinHostPort(to, strconv.Itoa(world.Port)))
	}
	got, err := p.shell(ctx, strings.Join(script, " "))
	if err != nil {
		return noNetwork(err)
	}
	return judgeNetwork(got.Text(), len(denied))
}

// judgeNetwork judges what a program found: the first two of the places that it
// asked at answer, and the others refuse.
func judgeNetwork(seen string, denied int) finding.Finding {
	lines := strings.Split(strings.TrimSpace(seen), "\n")
	if len(lines) != 2+denied {
		return noNetwork(fmt.Errorf("a program in it told %q", seen))
	}
	for i, line := range lines {
		switch answered := strings.HasSuffix(line, " answered"); {
		case i >= 2 && answered:
			return finding.Failure(networkAccess, "don't start a server with --network here, and report it with the output of rockpool doctor --json", "a program reached what its packet filter should keep from it: %s", line)
		case i < 2 && !answered:
			return noNetwork(fmt.Errorf("a program in it doesn't reach what is public: %s", line))
		}
	}
	return finding.Fine(networkAccess, "runners can have it: a link, its packet filter and its bandwidth were made, read back, tried and removed; the settings network… offer it")
}

// attackApart has this command carry out the attacks where nobody could be
// harmed.
func (c *Command) attackApart(ctx context.Context, s cli.Streams) error {
	if os.Geteuid() != 0 {
		return errors.New("attacks need sandboxes, and sandboxes need root: run this as root, for example with sudo")
	}
	code, err := c.runApart(ctx, s.Out, s.Err)
	switch {
	case err != nil:
		return err
	case code != 0:
		return cli.ExitError(code)
	}
	return nil
}
