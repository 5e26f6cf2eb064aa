package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Skeleton is what every root directory must have, whatever the image contains there.
type Skeleton struct {
	Directories []string          // empty directories, as mount points
	Files       map[string]string // contents of files by path
	Home        string            // home directory of the user that programs run as
}

// User is the user id, and the group id, that programs run as.
const User = 1000

// Finish turns the unpacked layers into a root directory for runners, whose programs run as the
// image's user.
func (t *Tree) Finish(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	return t.setTimes()
}

func (t *Tree) prepare(ctx context.Context) error {
	t.layered = map[uint64]bool{}
	s := t.spec.Skeleton
	if err := t.user(ctx, s.Home, t.spec.User); err != nil {
		return err
	}
	if dir := t.spec.WorkingDirectory; dir != "" {
		if _, err := t.follow(strings.TrimPrefix(dir, "/"), true); err != nil {
			return Invalid("its working directory is invalid: "+reason(err), err)
		}
	}
	for _, dir := range s.Directories {
		if err := t.settle(path.Dir(dir)); err != nil {
			return err
		}
		// Without a mount, the image's files would be visible there: Go's runtime, and so the
		// agent, reads files in /sys.
		dir = strings.TrimPrefix(dir, "/")
		if err := t.root.RemoveAll(dir); err != nil {
			return err
		}
		if err := t.makeDirectory(dir); err != nil {
			return err
		}
	}
	for name, text := range s.Files {
		if err := t.settle(path.Dir(name)); err != nil {
			return err
		}
		if err := t.write(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// settle makes a path of directories: a mount there must not follow a link of the image.
func (t *Tree) settle(name string) error {
	at := "."
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		at = path.Join(at, part)
		info, err := t.root.Lstat(at)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			err = t.root.RemoveAll(at)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := t.makeDirectory(at); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) write(name string, data []byte) error {
	name = strings.TrimPrefix(name, "/")
	if err := t.root.RemoveAll(name); err != nil {
		return err
	}
	file, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Chmod(0o644), file.Close())
}

// user makes the image's user the one that programs run as: the two ids are swapped, so programs
// own the files of the image's user. Root isn't swapped: a program runs as root only on request.
func (t *Tree) user(ctx context.Context, home, user string) error {
	if err := t.settle("/etc"); err != nil {
		return err
	}
	passwd, err := t.names("etc/passwd")
	if err != nil {
		return err
	}
	groups, err := t.names("etc/group")
	if err != nil {
		return err
	}
	name, group, _ := strings.Cut(user, ":")
	uid, gid, err := passwd.find(name)
	if err != nil {
		return Invalid(fmt.Sprintf("its user %.100q isn't in its /etc/passwd", user), err)
	}
	if group != "" {
		if gid, _, err = groups.find(group); err != nil {
			return Invalid(fmt.Sprintf("its user's group %.100q isn't in its /etc/group", user), err)
		}
	}
	swap := idSwap{uids: swapped(uid), gids: swapped(gid)}
	if err := t.changeOwners(ctx, swap); err != nil {
		return err
	}
	name = UserName(user)
	// The columns are the uid and gid of a user, and the gid of a group (passwd(5), group(5)).
	passwd.swap(swap.uids, 2)
	passwd.swap(swap.gids, 3)
	groups.swap(swap.gids, 2)
	if err := t.write("etc/passwd", passwd.withFirst(name, fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh", name, User, User, name, home))); err != nil {
		return err
	}
	return t.write("etc/group", groups.withFirst(name, fmt.Sprintf("%s:x:%d:", name, User)))
}

// DefaultUser is the name of the user that programs run as, if the image names none.
const DefaultUser = "runner"

// UserName returns the name of that user, given the user in an image's configuration.
func UserName(user string) string {
	name, _, _ := strings.Cut(user, ":")
	if _, err := strconv.Atoi(name); err == nil || name == "" || name == "root" || len(name) > 32 || strings.ContainsFunc(name, invalidInName) {
		return DefaultUser
	}
	return name
}

func invalidInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
}

type idSwap struct{ uids, gids map[int]int }

// swapped returns a map that swaps id and User, if there is something to swap.
func swapped(id int) map[int]int {
	if id <= 0 || id > maxID || id == User {
		return nil
	}
	return map[int]int{id: User, User: id}
}

func (t *Tree) changeOwners(ctx context.Context, swap idSwap) error {
	if t.spec.Alone || swap.uids == nil && swap.gids == nil {
		return nil
	}
	done := map[uint64]bool{} // files with several links, by inode
	return fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Nlink > 1 && !d.IsDir() && done[stat.Ino] {
			return nil
		}
		uid, toUID := swap.uids[int(stat.Uid)]
		gid, toGID := swap.gids[int(stat.Gid)]
		if !toUID && !toGID {
			return nil
		}
		// chown(2) leaves an id as it is for -1.
		if !toUID {
			uid = -1
		}
		if !toGID {
			gid = -1
		}
		if stat.Nlink > 1 {
			done[stat.Ino] = true
		}
		return t.root.Lchown(name, uid, gid)
	})
}

type names [][]string

// maxNames bounds the size of either file, in bytes.
const maxNames = 1 << 20

func (t *Tree) names(name string) (*names, error) {
	var all names
	at, err := t.follow(path.Dir(name), false)
	if err != nil {
		return nil, err
	}
	info, err := t.root.Lstat(path.Join(at, path.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return &all, nil
	}
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return &all, nil // not a file: write replaces it
	case info.Size() > maxNames:
		return nil, Invalid("its /"+name+" is too large", nil)
	}
	text, err := t.root.ReadFile(path.Join(at, path.Base(name)))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		all = append(all, strings.Split(strings.TrimRight(string(line), "\n"), ":"))
	}
	return &all, nil
}

// find returns the id of a user or group name, or of a number, and the group of a user. "" is root.
func (n *names) find(name string) (id, group int, err error) {
	number, notNumber := strconv.Atoi(name)
	if name == "" {
		number, notNumber = 0, nil
	}
	for _, fields := range *n {
		if len(fields) < 3 {
			continue
		}
		id, err := strconv.Atoi(fields[2])
		if err != nil || fields[0] != name && (notNumber != nil || id != number) {
			continue
		}
		if len(fields) > 3 {
			group, _ = strconv.Atoi(fields[3]) // 0 if it isn't a number
		}
		return id, group, nil
	}
	if notNumber != nil {
		return 0, 0, fs.ErrNotExist
	}
	return number, 0, nil
}

func (n *names) swap(ids map[int]int, column int) {
	for _, fields := range *n {
		if len(fields) <= column {
			continue
		}
		if id, err := strconv.Atoi(fields[column]); err == nil {
			if to, ok := ids[id]; ok {
				fields[column] = strconv.Itoa(to)
			}
		}
	}
}

// withFirst puts a line first, in place of any of that name: for an id the first line counts.
func (n *names) withFirst(name, first string) []byte {
	text := bytes.NewBufferString(first + "\n")
	for _, fields := range slices.DeleteFunc(*n, func(fields []string) bool { return fields[0] == name }) {
		text.WriteString(strings.Join(fields, ":") + "\n")
	}
	return text.Bytes()
}
