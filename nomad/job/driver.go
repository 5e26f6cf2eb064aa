package job

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

type taskDriver struct {
	user      string                                            // of the task, if neither the template nor Config names one
	contained bool                                              // the agent is the entry point of a container
	local     string                                            // the task's directory, as seen by alloc exec
	socket    string                                            // path of the agent's socket; relative in raw_exec, since a socket's address has at most 108 bytes
	supports  func(runtime.Environment) error                   // returns INVALID_INPUT if the driver can't run the environment
	configure func(Config, runtime.Environment, map[string]any) // sets the options of a container in its task's config
}

var drivers = map[Driver]taskDriver{
	Docker:  {"root", true, "/local", "/secrets/agent.sock", inContainer, configureDocker},
	Podman:  {"root", true, "/local", "/secrets/agent.sock", inContainer, configurePodman},
	Exec:    {"", false, "/local", "/secrets/agent.sock", inChroot, nil},
	RawExec: {"", false, "local", "secrets/agent.sock", onMachine, nil},
}

func inContainer(env runtime.Environment) error {
	switch {
	case env.Image == runtime.DefaultImage:
		return runtime.Invalid("image", `must name a container image, for example "python:3.12": %q is for a single machine`, env.Image)
	case env.Isolation == runtime.IsolationNone:
		return runtime.Invalid("isolation", "must be NAMESPACES, GVISOR or CLUSTER: a container always isolates")
	}
	return needsAccess(env)
}

func inChroot(env runtime.Environment) error {
	switch {
	case env.Image != runtime.DefaultImage:
		return runtime.Invalid("image", "must be %q: the exec driver has no images", runtime.DefaultImage)
	case env.Isolation == runtime.IsolationGVisor || env.Isolation == runtime.IsolationNone:
		return runtime.Invalid("isolation", "must be NAMESPACES or CLUSTER with the exec driver")
	}
	return needsAccess(env)
}

func onMachine(env runtime.Environment) error {
	switch {
	case env.Image != runtime.DefaultImage:
		return runtime.Invalid("image", "must be %q: the raw_exec driver has no images", runtime.DefaultImage)
	case env.Isolation != runtime.IsolationNone && env.Isolation != runtime.IsolationCluster:
		return runtime.Invalid("isolation", "must be NONE or CLUSTER: raw_exec is unsafe, because it doesn't isolate runners from each other or from the machine")
	case len(env.Network.ExposedPorts) > 0:
		return runtime.Invalid("network.exposedPorts", "must be empty with the raw_exec driver: its runners have the machine's own ports")
	}
	return nil
}

func needsAccess(env runtime.Environment) error {
	if len(env.Network.ExposedPorts) > 0 && !env.Network.Access {
		return runtime.Invalid("network.exposedPorts", "must be empty without network.access")
	}
	return nil
}

// rejectNarrowing rejects network settings that Nomad can't apply to a single job.
func rejectNarrowing(n runtime.Network) error {
	const why = "Nomad can't keep one job's network to some addresses: give the network that --nomad-network-mode names rules of its own"
	switch {
	case len(n.Allow) > 0:
		return runtime.Invalid("network.allow", "must be empty on Nomad: %s", why)
	case len(n.AllowNames) > 0:
		return runtime.Invalid("network.allowNames", "must be empty on Nomad: %s", why)
	case n.BandwidthMbit > 0:
		return runtime.Invalid("network.bandwidthMbit", "must be 0 on Nomad: it doesn't limit a job's bandwidth")
	}
	return nil
}

// capabilities are those that the agent needs in its container. Programs get none of them.
var capabilities = []string{"chown", "dac_override", "fowner", "kill", "setgid", "setpcap", "setuid"}

// agentThreads are those of the agent and two bridges, which the limit of processes counts. With one it had 26.
const agentThreads = 32

// configureDocker sets docker's options: those of a container, and /workspace and /tmp, which has the home
// directory. It also gives the container the stack, /dev/shm and control groups of a runner on one machine.
func configureDocker(c Config, env runtime.Environment, config map[string]any) {
	configureContainer(c, env, config)
	memory := int64(env.Resources.MemoryMiB) << 20
	stack := max(memory/16*15, 8<<20)
	if env.Isolation == runtime.IsolationGVisor {
		stack = min(stack, 128<<20) // the largest that gVisor has
	}
	setDefault(config, "ulimit", []map[string]any{{"stack": fmt.Sprintf("%d:-1", stack)}})
	setDefault(config, "shm_size", memory/2)
	setDefault(config, "cgroupns", "private") // on version 1 Docker's default is the node's
	mount := tmpfsMount
	if c.Workspace == WorkspaceVolume {
		mount = volumeMount
	}
	setDefault(config, "mount", []map[string]any{mount("/workspace", env.Resources.WorkspaceMiB), mount("/tmp", 2*env.Resources.WorkspaceMiB)})
}

// volumeMount returns a file system in memory that, unlike a tmpfs mount, Docker doesn't mount noexec.
func volumeMount(target string, mib int) map[string]any {
	options := map[string]any{
		"type": "tmpfs", "device": "tmpfs", "o": fmt.Sprintf("size=%dm,nr_inodes=%d,mode=1777,nosuid,nodev", mib, 256*mib+1024),
	}
	return map[string]any{
		"type": "volume", "target": target, "readonly": false,
		"volume_options": []map[string]any{{
			"no_copy": true, "driver_config": []map[string]any{{"name": "local", "options": []map[string]any{options}}},
		}},
	}
}

// tmpfsMount returns a file system in memory for a directory. Docker mounts it noexec.
func tmpfsMount(target string, mib int) map[string]any {
	const sticky = 0o1777
	return map[string]any{
		"type": "tmpfs", "target": target, "readonly": false,
		"tmpfs_options": []map[string]any{{"size": int64(mib) << 20, "mode": sticky}},
	}
}

func configurePodman(c Config, env runtime.Environment, config map[string]any) {
	configureContainer(c, env, config)
	mib := env.Resources.WorkspaceMiB
	setDefault(config, "tmpfs", []string{fmt.Sprintf("/workspace:size=%dm,mode=1777", mib), fmt.Sprintf("/tmp:size=%dm,mode=1777", 2*mib)})
}

func imageOf(env runtime.Environment) string {
	if env.Pin.Digest == "" {
		return env.Image
	}
	repository, _, _ := strings.Cut(env.Image, "@")
	// A colon before the last slash begins a registry's port, not a tag.
	if tag := strings.LastIndexByte(repository, ':'); tag > strings.LastIndexByte(repository, '/') {
		repository = repository[:tag]
	}
	return repository + "@" + env.Pin.Digest
}

// configureContainer sets the options that docker and podman share. The image, the limit of
// processes and the network come from the environment. A configured template may set the others.
func configureContainer(c Config, env runtime.Environment, config map[string]any) {
	config["image"] = imageOf(env)
	config["pids_limit"] = env.Resources.Processes + agentThreads
	setDefault(config, "readonly_rootfs", true) // otherwise programs could write there without a limit
	if _, dropped := config["cap_drop"]; !dropped {
		config["cap_drop"] = []string{"all"}
		setDefault(config, "cap_add", capabilities)
	}
	if c.ForcePull {
		setDefault(config, "force_pull", true)
	}
	if env.Isolation == runtime.IsolationGVisor {
		setDefault(config, "runtime", "runsc")
	}
	switch {
	case !env.Network.Access:
		config["network_mode"] = "none"
	case c.NetworkMode == "" && len(env.Network.ExposedPorts) > 0: // otherwise the driver joins the group's network
		labels := make([]string, 0, len(env.Network.ExposedPorts))
		for _, port := range env.Network.ExposedPorts {
			labels = append(labels, portLabel(port))
		}
		config["ports"] = labels
	}
}

// setDefault sets a key that a configured template leaves open.
func setDefault(config map[string]any, key string, value any) {
	if _, there := config[key]; !there {
		config[key] = value
	}
}

// command makes a task run the agent, after it was streamed if necessary.
func (d taskDriver) command(agent string, stream bool, env runtime.Environment, task *api.Task) {
	args := []string{"serve", "--socket", d.socket}
	switch {
	case d.contained:
		args = append(args, "--image")
		if env.Pin.Account != "" {
			args = append(args, "--user", env.Pin.Account)
		}
	case Driver(task.Driver) == Exec:
		args = append(args, "--workspace-mib", strconv.Itoa(env.Resources.WorkspaceMiB), "--processes", strconv.Itoa(env.Resources.Processes+agentThreads))
	default:
		args = append(args, "--workspace", "${NOMAD_TASK_DIR}/workspace")
		if !env.Network.Access {
			args = append(args, "--no-network") // the agent disables the network, since the driver can't
		}
	}
	if sharesIPC(task.Config["ipc_mode"]) {
		args = append(args, "--shared-ipc")
	}
	program := []string{agent}
	if stream {
		program = []string{shell, "-c", awaitAgent, agent}
	}
	if d.contained {
		delete(task.Config, "command")
		task.Config["entrypoint"], task.Config["args"] = program, args
	} else {
		task.Config["command"], task.Config["args"] = program[0], append(program[1:], args...)
	}
}

const shell = "/bin/sh"

// awaitAgent waits until the agent exists, and becomes it. It ends when the agent's directory is
// removed. It contains no "${", which Nomad would replace as a variable.
const awaitAgent = `trap 'exit 0' TERM INT
until [ -x "$0" ]; do
	[ -d "$NOMAD_TASK_DIR" ] || exit 1
	sleep 0.1 2>/dev/null || sleep 1
done
exec "$0" "$@"`

// sharesIPC reports whether a template's task shares its System V objects. By default it doesn't.
func sharesIPC(mode any) bool {
	return mode != nil && mode != "" && mode != "private" && mode != "none"
}
