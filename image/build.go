package image

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/similar"
)

type buildCommand struct {
	settings
	Name      string   `arg:"" help:"Name of the image: small letters, digits, '.', '_' and '-'. The file is NAME.tar."`
	Languages []string `placeholder:"LANGUAGE" help:"Languages to install, for example python3,c,java. rockpool image list --recipes lists them."`
	Packages  []string `placeholder:"PACKAGE" help:"More packages of Debian to install, for example git,python3-numpy."`
	File      string   `placeholder:"FILE" complete:"file" help:"File to write. (NAME.tar in the server's directory of image files)"`
	Release   string   `default:"bookworm" placeholder:"RELEASE" help:"Release of Debian. (${default})"`
	Mirror    []string `placeholder:"URL" sep:"none" help:"Mirror of Debian, or a line of a sources.list. Can be given more than once. (that of mmdebstrap, with security updates)"`
	Cache     string   `placeholder:"DIR" complete:"file" help:"Directory for downloaded packages. (rockpool/debian in the user's cache)"`
}

// names are the valid names of images and of Debian's packages and releases.
var (
	names    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	packages = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}$`)
)

// Validate returns an error for a wrong command line. kong calls it.
func (c *buildCommand) Validate() error {
	switch {
	case !names.MatchString(c.Name):
		return fmt.Errorf("the name %q must be 1 to 64 small letters, digits, '.', '_' and '-'", c.Name)
	case !packages.MatchString(c.Release):
		return fmt.Errorf("%q isn't a release of Debian; an example is bookworm", c.Release)
	case len(c.Languages)+len(c.Packages) == 0:
		return errors.New("give --languages, --packages or both; `rockpool image list --recipes` lists the languages")
	}
	for _, name := range c.Packages {
		if !packages.MatchString(name) {
			return fmt.Errorf("%q isn't the name of a package of Debian", name)
		}
	}
	for _, mirror := range c.Mirror {
		if strings.HasPrefix(mirror, "-") { // it would be an option of mmdebstrap
			return fmt.Errorf("the mirror %q must be an address, or a line of sources.list", mirror)
		}
	}
	return nil
}

// base are the packages of every image, in addition to Debian's essential ones.
var base = []string{"ca-certificates", "tzdata", "netbase", "media-types", "procps"}

// Run builds the image.
func (c *buildCommand) Run(s command.Streams) error {
	directory, recipes, err := c.read()
	if err != nil {
		return err
	}
	install, hooks, limits, err := c.install(recipes)
	if err != nil {
		return err
	}
	made, err := epoch()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("mmdebstrap isn't installed on this machine: apt-get install mmdebstrap (other systems than Debian also need debian-archive-keyring)")
	}
	if c.Cache, err = c.cache(); err != nil {
		return err
	}
	file := cmp.Or(c.File, filepath.Join(directory, c.Name+".tar"))
	if err := writable(filepath.Dir(file)); err != nil {
		return err
	}
	ctx, stop := command.Stoppable()
	defer stop()
	_, _ = fmt.Fprintf(s.Err, "rockpool: building %s from %d packages of Debian %s and what they need\n", file, len(install), c.Release)
	root := exec.CommandContext(ctx, "mmdebstrap", c.arguments(install, hooks)...)
	root.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(made.Unix(), 10))
	root.Cancel = func() error { return root.Process.Signal(os.Interrupt) } // it removes its temporary files
	root.WaitDelay = time.Minute
	progress := &progress{out: s.Err, tick: time.NewTicker(silence)}
	root.Stderr = progress
	stopWatch := progress.watch()
	var written archive
	err = write(file, made, func(layer io.Writer) error {
		root.Stdout = layer
		if err := root.Run(); err != nil {
			return fmt.Errorf("mmdebstrap couldn't make the image (%w):\n%s", err, progress.tail())
		}
		return nil
	}, &written)
	stopWatch()
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	_, err = fmt.Fprintf(s.Out, "%s: %d MiB, %s\n", file, written.bytes>>20, written.digest)
	if err == nil && c.File == "" {
		_, err = fmt.Fprintf(s.Err, "rockpool: use it with `rockpool env put %s --image file:%s.tar%s`\n", c.Name, c.Name, limits)
	}
	return err
}

// install returns the packages to install, sorted, the hooks that make the languages' caches, and the flags of env
// put for the languages' limits.
func (c *buildCommand) install(recipes *language.Set) (install, hooks []string, flags string, err error) {
	var limits language.Limits
	for _, id := range c.Languages {
		recipe, known := recipes.ByID(id)
		switch {
		case !known:
			var all []string
			for _, r := range recipes.All() {
				all = append(append(all, r.ID), r.Aliases...)
			}
			question := similar.Question(id, all)
			if question != "" {
				question += " "
			}
			return nil, nil, "", fmt.Errorf("the language %q is unknown; %s`rockpool image list --recipes` lists the languages", id, question)
		case len(recipe.Debian) == 0:
			return nil, nil, "", fmt.Errorf("the recipe of %s names no packages of Debian: name them with --packages, or in the field debian of the recipe", recipe.ID)
		}
		install = append(install, recipe.Debian...)
		if hook := cacheHook(recipe); len(recipe.Cache.Make) > 0 && !slices.Contains(hooks, hook) {
			hooks = append(hooks, hook)
		}
		l := recipe.Limits
		limits.MemoryMiB, limits.Processes, limits.WorkspaceMiB = max(limits.MemoryMiB, l.MemoryMiB), max(limits.Processes, l.Processes), max(limits.WorkspaceMiB, l.WorkspaceMiB)
	}
	install = slices.Concat(base, install, c.Packages)
	slices.Sort(install)
	if limits.MemoryMiB > 0 {
		flags += fmt.Sprintf(" --memory %dMiB", limits.MemoryMiB)
	}
	if limits.Processes > 0 {
		flags += fmt.Sprintf(" --processes %d", limits.Processes)
	}
	if limits.WorkspaceMiB > 0 {
		flags += fmt.Sprintf(" --workspace %dMiB", limits.WorkspaceMiB)
	}
	return slices.Compact(install), hooks, flags, nil
}

// arguments returns those of mmdebstrap, which writes the root as a tar archive to its output. The
// image needs no apt, because its root is read-only.
func (c *buildCommand) arguments(install, hooks []string) []string {
	archives := "/var/cache/apt/archives/"
	all := []string{
		"--variant=essential", "--format=tar", "--include=" + strings.Join(install, ","),
		"--dpkgopt=force-unsafe-io", // a crash loses only files that the next build makes again
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/lintian/*",
		"--skip=essential/unlink", // so that the downloaded packages can be kept
		`--setup-hook=mkdir -p "$1` + archives + `" "$1/usr/share/man/man1"`, // the JDK's scripts need man1
		"--setup-hook=sync-in " + quoted(c.Cache) + " " + archives,
		// A single machine adds this account itself.
		`--customize-hook=echo runner:x:1000:1000:runner:/tmp/home:/bin/sh >>"$1/etc/passwd"`,
		`--customize-hook=echo runner:x:1000: >>"$1/etc/group"`,
		"--customize-hook=sync-out " + archives + " " + quoted(c.Cache),
		// The cache's directory and its lock came with their owners and times, which aren't the image's.
		`--customize-hook=install -d -o 0 -g 0 -m 755 "$1` + archives + `" && rm "$1` + archives + `lock"`,
	}
	for _, hook := range hooks {
		all = append(all, "--customize-hook="+hook)
	}
	return append(append(all, c.Release, "-"), c.Mirror...)
}

// cacheHook returns the hook of mmdebstrap that makes a language's cache in the image.
func cacheHook(r language.Recipe) string {
	const home = "/tmp/home"
	inside := path.Join(agent.Caches, r.ID)
	command := []string{"env", "-i", "PATH=" + runtime.SearchPath, "HOME=" + home}
	for _, v := range runtime.Offline {
		command = append(command, v.Name+"="+v.Value)
	}
	variables := r.Cache.VariablesAt(inside)
	command = append(append(command, variables...), r.Cache.Make...)
	for i, word := range command {
		command[i] = quoted(word)
	}
	lines, at := quoted(strings.Join(variables, "\n")), `"$1"`+inside
	return fmt.Sprintf(`mkdir -p %[1]s "$1"%[2]s && chroot "$1" %[3]s && rm -rf "$1"%[2]s && { rmdir %[1]s 2>/dev/null || printf '%%s\n' %[4]s >%[1]s%[5]s; }`,
		at, home, strings.Join(command, " "), lines, agent.CacheVariables)
}

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// cache returns the directory for downloaded packages, which it makes.
func (c *buildCommand) cache() (string, error) {
	dir := c.Cache
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("give --cache, since neither $XDG_CACHE_HOME nor $HOME names a cache: %w", err)
		}
		dir = filepath.Join(user, "rockpool", "debian", c.Release)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	// Scripts of the packages there run as the caller.
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return "", fmt.Errorf("others could put packages into the cache %s: give another one with --cache, which belongs to you and to which nobody else may write", dir)
	}
	return dir, nil
}

// writable makes a directory if it is missing, or says what to do.
func writable(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-"); err == nil {
			_ = probe.Close()
			return os.Remove(probe.Name())
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as the server's user, or write the image elsewhere with --file", err)
	}
	return err
}

// epoch returns the time of the image: SOURCE_DATE_EPOCH, or the begin of the day.
func epoch() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now().UTC().Truncate(24 * time.Hour), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970, not %q", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
