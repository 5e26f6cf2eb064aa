package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/renameio/v2"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/language"
)

const (
	cacheWithin  = 10 * time.Minute    // limit of the command that makes a cache
	cacheAgain   = time.Hour           // pause after a failure
	cacheUnused  = 30 * 24 * time.Hour // a cache that no server used for so long is removed
	cachePrefix  = "new-"              // of an incomplete cache
	failedSuffix = ".failed"           // of a file with the reason why a cache couldn't be made
)

// MakeCache makes the cache of a language, unless it exists, for sandboxes with this machine's programs. It calls begin
// if the cache is missing. made reports whether this call made it. It stays for later servers, until the language's
// tool changes. Sandboxes that run already see it, except those with gVisor.
//
// Nothing is made if the tool isn't installed, if no sandbox can be started, or if a listening helper makes the
// sandboxes: that has its own root directory.
func (h *Host) MakeCache(ctx context.Context, r language.Recipe, begin func()) (made bool, err error) {
	tool := FindProgram(slices.Concat(r.Build, r.Run)[0])
	if h.Direct == nil || h.unready != nil || tool == "" {
		return false, nil
	}
	if err := h.BuildRoot(ctx); err != nil {
		return false, err
	}
	directory, err := h.cachesOf(r.ID)
	if err != nil {
		return false, err
	}
	defer directory.Close() // unlocks it
	key, err := cacheKey(r.Cache, tool)
	if err != nil {
		return false, err
	}
	kept := filepath.Join(directory.Name(), key)
	if _, err := os.Stat(kept); err != nil {
		begin()
	}
	if err := disk.Lock(ctx, directory); err != nil { // servers may share it
		return false, err
	}
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		removeOld(directory.Name())
		if err := makeOnce(ctx, r, kept); err != nil {
			return false, err
		}
		made = true
	}
	now := time.Now()
	_ = os.Chtimes(kept, now, now) // it is in use
	return made, h.showCache(r, kept)
}

// FindProgram returns the path of a program that runners with this machine's programs find by its name.
// "" means that there is none. They see this machine's /usr.
func FindProgram(name string) string {
	for _, dir := range filepath.SplitList(runtime.MachinePath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// cachesOf opens the directory of a language's caches. Nobody else may write to it, since tenants run what is there.
func (h *Host) cachesOf(id string) (*os.File, error) {
	dir := filepath.Join(h.config.Caches, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	switch owner := info.Sys().(*syscall.Stat_t).Uid; {
	case uids.Root():
		err = oci.RootOnly(dir)
	case int(owner) != os.Geteuid() || info.Mode()&0o022 != 0:
		err = fmt.Errorf("%s must belong to the server's user, and nobody else may write to it", dir)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(dir)
}

// cacheKey returns the name of a cache. It changes with the recipe and the tool. A root server runs only tools that
// only root can change.
func cacheKey(c language.Cache, tool string) (string, error) {
	tool, err := filepath.EvalSymlinks(tool)
	if err == nil && uids.Root() {
		err = oci.RootOnly(tool)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(tool)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendln(nil, c, tool, info.ModTime(), info.Size()))
	return hex.EncodeToString(sum[:8]), nil
}

// removeOld removes incomplete caches of servers that were killed, and those that no server used for long.
func removeOld(dir string) {
	all, _ := os.ReadDir(dir)
	for _, entry := range all {
		info, err := entry.Info()
		if err == nil && (strings.HasPrefix(entry.Name(), cachePrefix) || time.Since(info.ModTime()) > cacheUnused) {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}

// makeOnce makes a cache, and doesn't try again for a while after a failure.
func makeOnce(ctx context.Context, r language.Recipe, kept string) error {
	failed := kept + failedSuffix
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < cacheAgain {
		reason, err := os.ReadFile(failed)
		return errors.Join(err, fmt.Errorf("%s (tried again in %s, or when you delete %s)", reason, (cacheAgain-time.Since(info.ModTime())).Round(time.Minute), failed))
	}
	err := runTool(ctx, r, kept)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, os.WriteFile(failed, []byte(err.Error()), 0o600))
	}
	return err
}

// runTool makes a cache at kept. If the command makes no file there, the tool needs no cache. It runs as the server's
// user and not in a sandbox, because a sandbox has only memory to write to. It gets the recipe's variables only.
func runTool(ctx context.Context, r language.Recipe, kept string) error {
	made, err := os.MkdirTemp(filepath.Dir(kept), cachePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(made) }()
	cache, home := filepath.Join(made, "cache"), filepath.Join(made, "home")
	if err := errors.Join(os.Mkdir(cache, 0o755), os.Mkdir(home, 0o700)); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(made, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	ctx, cancel := context.WithTimeout(ctx, cacheWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"nice", "-n", "10"}, r.Cache.Make...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", output, output
	cmd.Env = append([]string{"PATH=" + runtime.MachinePath, "HOME=" + home, "TMPDIR=" + home}, r.Cache.VariablesAt(cache)...)
	for _, v := range runtime.Offline {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	goruntime.LockOSThread() // Pdeathsig is for the end of the thread
	defer goruntime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	// The server may be protected from the kernel's OOM killer; the tool isn't.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	if err := cmd.Wait(); err != nil {
		text := make([]byte, 500)
		n, _ := output.ReadAt(text, 0)
		return fmt.Errorf("%s: %w: %s", strings.Join(r.Cache.Make, " "), err, text[:n])
	}
	if err := readable(cache); err != nil {
		return err
	}
	return os.Rename(cache, kept)
}

// readable lets every user read a tree's directories and files, regardless of the umask.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

// showCache puts links to a cache's files, and then its variables, into the root directory.
func (h *Host) showCache(r language.Recipe, kept string) error {
	if files, err := os.ReadDir(kept); err != nil || len(files) == 0 {
		return err
	}
	inside := filepath.Join(agent.Caches, r.ID+"-"+filepath.Base(kept))
	to := filepath.Join(h.rootDir(), inside)
	text := []byte(strings.Join(r.Cache.VariablesAt(inside), "\n") + "\n")
	variables := filepath.Join(h.rootDir(), agent.Caches, r.ID+agent.CacheVariables)
	if there, err := os.ReadFile(variables); err == nil && string(there) == string(text) {
		return nil
	}
	err := filepath.WalkDir(kept, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := to + strings.TrimPrefix(path, kept)
		if entry.IsDir() {
			return errors.Join(os.MkdirAll(at, 0o755), os.Chmod(at, 0o755)) // regardless of the umask
		}
		if err := os.Link(path, at); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return renameio.WriteFile(variables, text, 0o644, renameio.WithTempDir(filepath.Dir(variables)), renameio.WithStaticPermissions(0o644))
}
