package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

const networkAccess = "network access"

// runIsolated runs this command again in an empty network namespace, where it can't harm other
// machines. It returns the exit code of that process.
func (c *Command) runIsolated(ctx context.Context, out, errs io.Writer) (int, error) {
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
	// The process gets its own group: otherwise a terminal's ^C would be its second signal and end
	// it immediately. Pdeathsig ends it with the thread that starts it, so the thread is locked.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // time to clean up
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, fmt.Errorf("start in a network namespace: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// examineNetwork tests whether runners can have network access. It uses a runner in a network
// namespace without connections to the outside.
func (c *Command) examineNetwork(ctx context.Context) []health.Finding {
	var out, errs bytes.Buffer
	code, err := c.runIsolated(ctx, &out, &errs)
	var result struct{ Findings []health.Finding }
	if err == nil && json.Unmarshal(out.Bytes(), &result) != nil {
		err = fmt.Errorf("the test ended with exit code %d: %s", code, strings.TrimSpace(errs.String()))
	}
	if err != nil {
		return []health.Finding{noNetwork(err)}
	}
	return result.Findings
}

// noNetwork returns the warning that runners can't have network access, because of err.
func noNetwork(err error) health.Finding {
	return health.Warning(networkAccess, "until this is fixed, programs get no network access (settings network…). The kernel needs the modules veth, nf_tables, nft_fib_netdev, nft_reject_netdev, nft_connlimit, nft_masq and sch_tbf, which some distributions put into a package of extra modules; this test needs iproute2",
		"runners can't have network access: %v", err)
}

// probeNetwork tests network access with one runner. It runs in the process that runIsolated starts.
func (c *Command) probeNetwork(ctx context.Context, settings config.Config) (found []health.Finding) {
	around, err := OfferWorld(ctx, &settings)
	if err != nil {
		return []health.Finding{noNetwork(err)}
	}
	defer func() { _ = around.Close() }()
	say := func(format string, args ...any) {
		found = append(found, health.Warning(networkAccess, "the next rockpool doctor or temporary server removes it", format, args...))
	}
	err = private.Run(ctx, settings, zap.NewNop(), say, func(ctx context.Context, srv *server.Server) error {
		found = append(found, tryNetwork(ctx, srv))
		return nil
	})
	if err != nil {
		found = append(found, noNetwork(err))
	}
	if left := RunnersLinks(); len(left) > 0 {
		found = append(found, health.Failure(networkAccess, "report it with the output of rockpool doctor --json", "a removed runner left %s", strings.Join(left, ", ")))
	}
	return found
}

// RunnersLinks returns the network links of runners in this network namespace.
func RunnersLinks() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		if strings.HasPrefix(i.Name, network.LinkPrefix) {
			names = append(names, "link "+i.Name)
		}
	}
	return names
}

// OfferWorld creates the simulated network in this process's network namespace. It changes settings
// so that a server gives runners access to it. The caller must close the World.
func OfferWorld(ctx context.Context, settings *config.Config) (*world.World, error) {
	if err := namespaces.RaiseLoopback(); err != nil {
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

// tryNetwork gives a runner of the server network access, and runs a program in it that tests what
// it reaches. Before that, the server itself reads link, filter and bandwidth back from the kernel.
func tryNetwork(ctx context.Context, srv *server.Server) health.Finding {
	reached := srv.Client()
	defer reached.CloseIdle()
	const environment = "doctor-network"
	input := client.PutEnvironmentInput{
		Id: environment, PoolSize: new(int), Network: &client.NetworkInput{Access: new(true), ExposedPorts: []int{8000}},
		Resources: &client.ResourcesInput{MemoryMiB: new(doctorMemoryMiB), Processes: new(doctorProcesses), CpuMHz: new(doctorCPUMHz)},
	}
	if err := client.Put(ctx, reached, input); err != nil {
		return noNetwork(err)
	}
	defer func() { _ = client.Delete(ctx, reached, environment) }() // on an error, it is removed with the server
	p := subject{client: reached}
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
		err = reached.UploadFile(ctx, p.runner, "prober", "0755", false, int64(len(program)), bytes.NewReader(program))
	}
	if err != nil {
		return noNetwork(err)
	}
	// judgeNetwork relies on the order: public addresses first, then denied ones.
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

// judgeNetwork judges the output of the prober: the first two addresses must be reachable, and the
// others must not.
func judgeNetwork(seen string, denied int) health.Finding {
	lines := strings.Split(strings.TrimSpace(seen), "\n")
	if len(lines) != 2+denied {
		return noNetwork(fmt.Errorf("unexpected output of the test program: %q", seen))
	}
	for i, line := range lines {
		switch answered := strings.HasSuffix(line, " answered"); {
		case i >= 2 && answered:
			return health.Failure(networkAccess, "don't start a server with --network on this machine, and report this with the output of rockpool doctor --json", "a program reached an address that its packet filter should block: %s", line)
		case i < 2 && !answered:
			return noNetwork(fmt.Errorf("a program can't reach a public address: %s", line))
		}
	}
	return health.Fine(networkAccess, "works: a link, its packet filter and its bandwidth limit were created, read back, tested and removed; the settings network… turn it on")
}

// attackIsolated runs the attacks in an isolated network, where they can't harm other machines.
func (c *Command) attackIsolated(ctx context.Context, s command.Streams) error {
	if !uids.Root() {
		return errors.New("attacks need sandboxes, and these need root: run `sudo rockpool doctor --attack`")
	}
	code, err := c.runIsolated(ctx, s.Out, s.Err)
	switch {
	case err != nil:
		return err
	case code != 0:
		return command.ExitError(code)
	}
	return nil
}
