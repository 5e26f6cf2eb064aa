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

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/secure"
)

// oldestKernel is the first that has time namespaces, which every sandbox has.
var oldestKernel = [2]int{5, 6}

func kernel() finding.Finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return finding.Failure("kernel", "this program is for Linux", "it can't be asked: %v", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	return judgeKernel(release)
}

func judgeKernel(release string) finding.Finding {
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // what can't be read is 0
	if major < oldestKernel[0] || major == oldestKernel[0] && minor < oldestKernel[1] {
		return finding.Failure("kernel", fmt.Sprintf("use a kernel of version %d.%d or later", oldestKernel[0], oldestKernel[1]), "Linux %s is too old", release)
	}
	return finding.Fine("kernel", "Linux %s on %s, %d CPUs", release, goruntime.GOARCH, goruntime.NumCPU())
}

// clock looks whether anything sets the clock: claims and executions are stored
// with times, and clients compare them with their own.
func clock() finding.Finding {
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	switch {
	case err != nil:
		return finding.Warning("clock", "see that it is set, for example by systemd-timesyncd", "the kernel doesn't say whether it is right: %v", err)
	case status == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0:
		return finding.Warning("clock", "run something that sets it, for example systemd-timesyncd or chrony, unless the host of this machine does", "nothing sets it: it is %s", time.Now().UTC().Format(time.RFC3339))
	}
	return finding.Fine("clock", "it is set, within %v", time.Duration(state.Maxerror)*time.Microsecond)
}

// manyFiles is what 1,000 runners with a few watchers each need.
const manyFiles = 16384

// openFiles looks at the hard limit: Go raises the other one to it by itself.
func openFiles() finding.Finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return finding.Warning("open files", "", "their limit can't be read: %v", err)
	}
	if limit.Max < manyFiles {
		return finding.Warning("open files", fmt.Sprintf("raise it before starting the server: ulimit -Hn %d, or LimitNOFILE= in its systemd unit", 4*manyFiles), "the server may have %d open: a runner takes up to eleven, and a watcher one", limit.Max)
	}
	return finding.Fine("open files", "the server may have %d open", limit.Max)
}

func languages() finding.Finding {
	var there, missing []string
	for _, s := range server.Starters() {
		if s.Installed() {
			there = append(there, string(s.ID))
		} else {
			missing = append(missing, s.Program+" for "+string(s.ID))
		}
	}
	if len(missing) > 0 {
		return finding.Warning("languages", "install what programs are to be written in; runners see this machine's /usr", "environments can be made for %s; there is no %s", strings.Join(there, ", "), strings.Join(missing, ", "))
	}
	return finding.Fine("languages", "environments can be made for %s", strings.Join(there, ", "))
}

// Room for what is kept.
const (
	littleRoom = 1 << 30
	noRoom     = 100 << 20
)

// disk looks at the file system that holds the data, or would.
func disk(data string) []finding.Finding {
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
		return []finding.Finding{finding.Failure(name, "choose another directory with --data", "%s: %v", data, err)}
	}
	found := []finding.Finding{judgeRoom(data, int64(stat.Bavail)*stat.Bsize)}
	if stat.Flags&unix.ST_NOEXEC != 0 {
		found = append(found, finding.Failure(name, "choose a directory with --data on a file system that isn't mounted noexec", "no program can be executed in %s, but the server's helper must be", at))
	}
	if stat.Flags&unix.ST_RDONLY != 0 {
		found = append(found, finding.Failure(name, "choose another directory with --data", "%s is mounted read-only", at))
	}
	if stat.Files > 0 && stat.Ffree < 10_000 {
		found = append(found, finding.Warning(name, "remove files there, or choose another directory with --data", "%s has room for %d files only", at, stat.Ffree))
	}
	return found
}

func judgeRoom(data string, free int64) finding.Finding {
	room := fmt.Sprintf("%.1f GB are free for %s", float64(free)/1e9, data)
	switch advice := "make room, or choose another directory with --data; output is kept there"; {
	case free < noRoom:
		return finding.Failure("data", advice, "%s", room)
	case free < littleRoom:
		return finding.Warning("data", advice, "%s", room)
	}
	return finding.Fine("data", "%s", room)
}

// trust returns how to speak TLS with the server to look for: the one of the settings has the
// certificate that they name, for any names.
func (c *Command) trust(served config.Config) *tls.Config {
	if c.Server == "" && served.TLS.Enabled() {
		return secure.Pin(served.TLS.Cert)
	}
	trust, _ := connection.TLS{CAFile: os.Getenv("ROCKPOOL_CA_FILE"), CertFile: os.Getenv("ROCKPOOL_CERT_FILE"), KeyFile: os.Getenv("ROCKPOOL_KEY_FILE")}.Config()
	return trust // without it the finding says what is wrong
}

// listening looks for the server at url; "": its settings leave its port to the kernel.
func listening(ctx context.Context, url string, trust *tls.Config, token string) finding.Finding {
	const name = "server"
	if url == "" {
		return finding.Warning(name, "name it with --server", "its settings leave its port to the kernel, so that it isn't known where it listens")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if token == "" {
		token, _ = connection.Token("") // what other commands would use
	}
	server := client.New(url).WithToken(token)
	if trust != nil {
		server = server.WithTLS(trust)
	}
	defer server.CloseIdle()
	out, err := client.GetHealth(ctx, server)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return finding.Warning(name, "start one: rockpool serve", "none listens at %s", url)
	case err != nil:
		return finding.Warning(name, "see its log, or whether something else listens there", "%s: %v", url, err)
	case out.Health.Status != client.HealthStatusOk:
		var why []string
		for _, c := range out.Health.Components {
			if c.Status != client.HealthStatusOk {
				why = append(why, fmt.Sprintf("%s is %s (%s)", c.Name, c.Status, c.Message))
			}
		}
		return finding.Warning(name, "see its log", "%s is %s: %s", url, out.Health.Status, strings.Join(why, "; "))
	}
	return finding.Fine(name, "version %s answers at %s", out.Version, url)
}
