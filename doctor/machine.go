package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/connections"
)

// oldestKernel is the first version with time namespaces, which every sandbox uses.
var oldestKernel = [2]int{5, 6}

func kernel() health.Finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return health.Failure("kernel", "Rockpool needs Linux", "the version can't be read: %v", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	return judgeKernel(release)
}

// judgeKernel checks a kernel release, such as "6.8.0-41-generic". A release that it can't parse
// counts as too old.
func judgeKernel(release string) health.Finding {
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // an unreadable part stays 0
	if major < oldestKernel[0] || major == oldestKernel[0] && minor < oldestKernel[1] {
		return health.Failure("kernel", fmt.Sprintf("use Linux %d.%d or later", oldestKernel[0], oldestKernel[1]), "Linux %s is too old", release)
	}
	return health.Fine("kernel", "Linux %s on %s, %d CPUs", release, goruntime.GOARCH, goruntime.NumCPU())
}

// clock checks whether the clock is synchronized: claims and executions are stored with times, and
// clients compare them with their own clocks.
func clock() health.Finding {
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	switch {
	case err != nil:
		return health.Warning("clock", "synchronize the clock, for example with systemd-timesyncd", "the kernel doesn't report whether the clock is synchronized: %v", err)
	case status == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0:
		return health.Warning("clock", "synchronize the clock, for example with systemd-timesyncd or chrony, unless the host of this virtual machine does", "the clock isn't synchronized: it is %s", time.Now().UTC().Format(time.RFC3339))
	}
	return health.Fine("clock", "synchronized within %v", time.Duration(state.Maxerror)*time.Microsecond)
}

// manyFiles is the number of open files that 1,000 runners with a few subscribers each need.
const manyFiles = 16384

// openFiles checks the hard limit: Go raises the soft limit to it.
func openFiles() health.Finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return health.Warning("open files", "", "the limit of open files can't be read: %v", err)
	}
	if limit.Max < manyFiles {
		return health.Warning("open files", fmt.Sprintf("raise it before starting the server: ulimit -Hn %d, or LimitNOFILE= in its systemd unit", 4*manyFiles), "the server can open at most %d: a runner needs up to eleven and a subscriber one", limit.Max)
	}
	return health.Fine("open files", "the server can open up to %d", limit.Max)
}

// languages checks which languages' programs this machine has. A missing one is only a warning.
func languages() health.Finding {
	var there, missing []string
	for _, s := range server.Starters() {
		if s.Installed() {
			there = append(there, string(s.ID))
		} else {
			missing = append(missing, s.Program+" for "+string(s.ID))
		}
	}
	if len(missing) > 0 {
		return health.Warning("languages", "install the languages that you need; runners see this machine's /usr", "environments for %s can be created; missing: %s", strings.Join(there, ", "), strings.Join(missing, ", "))
	}
	return health.Fine("languages", "environments for %s can be created", strings.Join(there, ", "))
}

const (
	littleRoom = 1 << 30
	noRoom     = 100 << 20
)

// disk checks the file system of the data directory, or of its first existing parent.
func disk(data string) []health.Finding {
	const name = "data"
	at := data
	for {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(at, &stat); err != nil {
		return []health.Finding{health.Failure(name, "choose another directory with --data", "%s: %v", data, err)}
	}
	found := []health.Finding{judgeRoom(data, int64(stat.Bavail)*stat.Bsize)}
	if stat.Flags&unix.ST_NOEXEC != 0 {
		found = append(found, health.Failure(name, "choose a directory with --data on a file system that isn't mounted noexec", "%s is mounted noexec, but the server executes its helper there", at))
	}
	if stat.Flags&unix.ST_RDONLY != 0 {
		found = append(found, health.Failure(name, "choose another directory with --data", "%s is mounted read-only", at))
	}
	if stat.Files > 0 && stat.Ffree < 10_000 {
		found = append(found, health.Warning(name, "remove files there, or choose another directory with --data", "%s has only %d free inodes", at, stat.Ffree))
	}
	return found
}

func judgeRoom(data string, free int64) health.Finding {
	room := fmt.Sprintf("%.1f GB are free for %s", float64(free)/1e9, data)
	switch advice := "free some space, or choose another directory with --data; output is stored there"; {
	case free < noRoom:
		return health.Failure("data", advice, "%s", room)
	case free < littleRoom:
		return health.Warning("data", advice, "%s", room)
	}
	return health.Fine("data", "%s", room)
}

// trust returns the TLS configuration for the server to check. A server of the settings must have
// the certificate of the settings; its names don't matter. nil means the system's authorities.
func (c *Command) trust(served config.Config) *tls.Config {
	if c.Server == "" && served.TLS.Enabled() {
		return connections.Pin(served.TLS.Cert)
	}
	trust, _ := command.TLS{CAFile: os.Getenv("ROCKPOOL_CA_FILE"), CertFile: os.Getenv("ROCKPOOL_CERT_FILE"), KeyFile: os.Getenv("ROCKPOOL_KEY_FILE")}.Config()
	return trust // on an error, the finding about the server says what is wrong
}

// listening checks the server at url. "": the kernel chooses the port, so the url is unknown.
func listening(ctx context.Context, url string, trust *tls.Config, token string) health.Finding {
	const name = "server"
	if url == "" {
		return health.Warning(name, "give the URL with --server", "the address is unknown: the settings let the kernel choose the port")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if token == "" {
		token, _ = command.Token("") // as other commands do
	}
	server := client.New(url).WithToken(token)
	if trust != nil {
		server = server.WithTLS(trust)
	}
	defer server.CloseIdle()
	out, err := client.GetHealth(ctx, server)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return health.Warning(name, "start one: rockpool serve", "no server listens at %s", url)
	case err != nil:
		return health.Warning(name, "read the server's log, or check whether another program listens there", "%s: %v", url, err)
	case out.Health.Status != client.HealthStatusOk:
		var why []string
		for _, c := range out.Health.Components {
			if c.Status != client.HealthStatusOk {
				why = append(why, fmt.Sprintf("%s is %s (%s)", c.Name, c.Status, c.Message))
			}
		}
		return health.Warning(name, "read the server's log", "%s is %s: %s", url, out.Health.Status, strings.Join(why, "; "))
	}
	return health.Fine(name, "version %s responds at %s", out.Version, url)
}
