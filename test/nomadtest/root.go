package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rockpool/rockpool/test/repository"
)

// programs are the programs of tasks of the drivers exec and docker.
var programs = strings.Fields(`
	sh bash true false echo cat sleep env printenv id pwd ls mkdir rm cp mv chmod chown touch ln stat head tail wc
	dd seq yes tr cut sort tee test printf date kill ps setsid stty tty mkfifo timeout nproc sed grep awk find xargs
	hostname uname sha256sum base64 mount umount nohup`)

// makeRoot makes the root file system of tasks from this machine's programs and their libraries: 15
// MB instead of the whole machine.
func makeRoot(ctx context.Context, root string, more, files []string) error {
	for _, dir := range []string{"usr/bin", "etc", "tmp", "proc", "dev", "sys", "workspace"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return err
	}
	// Files are copied to the same place, through links: this machine's own /bin is either a directory
	// or a link to /usr/bin.
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		return err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\nrunner:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nrunner:x:1000:\nnogroup:x:65534:\n"), 0o644),
	)
	if err != nil {
		return err
	}
	for _, name := range append(programs, more...) {
		program, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := copyFile(program, filepath.Join(root, "usr/bin", name)); err != nil {
			return err
		}
		libraries, err := libraries(ctx, program)
		if err != nil {
			return err
		}
		for _, library := range libraries {
			if err := copyFile(library, filepath.Join(root, library)); err != nil {
				return err
			}
		}
	}
	for _, file := range files {
		if err := copyFile(file, filepath.Join(root, file)); err != nil {
			return err
		}
	}
	return nil
}

// libraries returns the shared libraries of a program, and their loader.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if strings.Contains(string(out), "not a dynamic executable") || strings.Contains(string(out), "statically linked") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	var all []string
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			all = append(all, word)
		}
	}
	return all, nil
}

// copyFile copies the file that a path leads to, unless the copy exists.
func copyFile(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// source returns the directory of this package's files.
func source() (string, error) {
	root, err := repository.Root()
	return filepath.Join(root, "test/nomadtest"), err
}
