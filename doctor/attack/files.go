package attack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	goruntime "runtime"
)

// uploadThroughLink writes only next to the bait, even if it succeeds.
const uploadThroughLink = "an upload through a link"

// files returns attacks on uploads, downloads, listings, searches and image layers.
func files() []Attack {
	all := []Attack{
		{
			Name: "a link to the machine", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a download follow a link to a file of the machine",
			Steps: []Step{shell("ln -s {secret} link; ln -s / root; echo made"), read("link"), read("root{secret}"), read("/proc/1/root{secret}"), read("/proc/self/cwd/link")},
			Held:  "^made\n=> EXITED 0\n(=> (LINK, not to be downloaded|no file|refused \\w+ .*)\n){4}",
		},
		{
			Name: "a path with ..", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to download a file of the machine with .. or an absolute path",
			Steps: []Step{read("../../../../../../../..{secret}"), read("{secret}"), read("/workspace/../..{secret}")},
			Held:  "^(=> (no file|refused \\w+ .*)\n){3}",
		},
		{
			Name: uploadThroughLink, Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make an upload follow a link to a file or directory of the machine",
			Steps: []Step{shell("ln -s $(dirname {secret}) out; ln -s {secret} over; echo made"), upload("out/attack", "attacked"), upload("over", "attacked"), shell("ls out/attack 2>/dev/null && echo got; echo tried")},
			Held:  "^made\n=> EXITED 0\n=> refused \\w+ .*\n=> (uploaded|refused \\w+ .*)\ntried\n=> EXITED 0", Never: "^got",
		},
		{
			// With a writable root, the link may lead to the runner's own /etc, which is harmless.
			Name: "a directory swapped for a link, upload", Class: Escapes, Defence: OwnUsers, Tries: "to make an upload follow a link that a program swaps with a directory",
			Steps: []Step{
				shell("mkdir dir; ln -s /etc link"), probe("swap", "dir", "link", "dir", "8000").behind(),
				upload("dir/attack", "attacked").times(40),
				shell("for f in /etc/attack /attack; do test -e $f && echo got $f; done; ls /etc/.[a-z]* 2>/dev/null; echo tried"),
			},
			Held: "^tried\n=> EXITED 0", Never: "got",
		},
		{
			Name: "a file swapped for a link, download", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a download follow a link that a program swaps with a file",
			Steps: []Step{
				shell("echo mine >file; ln -s {secret} link"), probe("swap", "file", "link", "file", "8000").behind(),
				read("file").times(40), read("file"),
			},
			Held: "^=> (FILE of \\d+ bytes|LINK, not to be downloaded|no file|broke off|refused \\w+ .*)\n\\z",
		},
		{
			Name: "a directory swapped for a link, listing", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a listing or search follow a link that a program swaps with a directory",
			Steps: []Step{
				shell("mkdir -p dir/below; ln -s / link"), probe("swap", "dir", "link", "dir", "8000").behind(),
				list("/workspace").times(30), list("/workspace"), find("root:").times(30), find("root:"),
			},
			Held: "^=> \\d+ listed\n(.*\n)*=> 0 found\n\\z", Never: "(dir|link)/(etc|usr|proc|tmp)",
		},
		{
			Name: "circular links", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a listing or search run forever",
			Steps: []Step{shell("ln -s . here; ln -s .. up; ln -s loop loop; mkdir -p a/b/c; ln -s /workspace a/b/c/back; echo needle >a/b/c/found; echo made"), list("/workspace"), read("loop"), find("needle")},
			Held:  "^made\n=> EXITED 0\n(.*\n)*=> ([4-9]|1[0-9]) listed\n=> (LINK, not to be downloaded|no file|refused \\w+ ?.*)\na/b/c/found: needle\n=> 1 found\n",
		},
		{
			Name: "hard links", Class: Escapes, Anywhere: true, Defence: Mounts, Tries: "to hard-link a file that doesn't belong to the runner",
			Steps: []Step{shell("for f in /etc/passwd /usr/bin/env /.rockpool/agent /proc/version; do ln $f hard 2>/dev/null && echo got $f; done; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0", Never: "got",
		},
		{
			Name: "a FIFO as a result", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a download or search wait forever",
			Steps: []Step{shell("mkfifo fifo result.txt; echo made"), read("fifo"), read("result.txt"), find("needle"), upload("fifo", "x"), list("/workspace")},
			Held:  "^made\n=> EXITED 0\n=> OTHER, not to be downloaded\n=> OTHER, not to be downloaded\n=> 0 found\n=> (uploaded|refused \\w+ ?.*)\n",
		},
		{
			Name: "devices and kernel files as a result", Class: Escapes, Anywhere: true, Defence: OwnFiles, Tries: "to make a download read endlessly, or an upload write to the kernel",
			Steps: []Step{read("/dev/zero"), read("/dev/ptmx"), read("/proc/kmsg"), upload("/dev/null", "x"), upload("/proc/sys/kernel/core_pattern", "|/attack"), upload("/proc/1/mem", "x")},
			Held:  "^=> OTHER, not to be downloaded\n=> OTHER, not to be downloaded\n=> (no file|broke off|refused \\w+ .*|.*)\n=> refused \\w+ .*\n=> refused \\w+ .*\n=> refused \\w+ .*\n",
		},
		{
			Name: "a huge sparse file", Class: Escapes, Anywhere: true, Defence: Inputs, Tries: "to make a download send, or a search read, a sparse file of four terabytes",
			Steps: []Step{probe("sparse", "/workspace/huge"), read("huge"), list("/workspace"), find("needle")},
			// gVisor reports that a sparse file takes as much disk space as its size. The download
			// then continues as long as the client reads; the server holds one piece in memory at a
			// time.
			Tiers: shared,
			Held:  "^sparse (done\n=> EXITED 0\n=> refused FILE_ERROR .*|EFBIG\n=> EXITED 0\n.*)\n(.*\n)*=> 0 found\n",
		},
		{
			Name: "file names that aren't text", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to break clients with unusual file names",
			Steps: []Step{shell("touch \"$(printf 'a\\nb')\" \"$(printf '\\377\\376')\" \"$(printf '\\033[2J')\" ' ' '<script>' '$(id)'; echo made"), list("/workspace")},
			Held:  "^made\n=> EXITED 0\n(.*\n)*=> [67] listed\n",
		},
		{
			Name: "a deep tree", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to make a listing or removal recurse too deeply",
			Steps: []Step{shell("mkdir -p $(printf 'd/%.0s' $(seq 300)); echo made 300"), list("/workspace")},
			Held:  "^made 300\n=> EXITED 0\n(.*\n)*=> (\\d+ listed|refused \\w+ ?.*)\n",
		},
	}
	for _, row := range []struct {
		name, tries string
		entries     func(dir string) []tar.Header
	}{
		{"a layer with ..", "to make an image layer write outside of its directory with ..", func(dir string) []tar.Header {
			return []tar.Header{{Name: "../../../../../../../../.." + dir + "/attack", Mode: 0o644, Typeflag: tar.TypeReg}, {Name: dir[1:] + "/../../../../../../../../.." + dir + "/attack", Mode: 0o644, Typeflag: tar.TypeReg}}
		}},
		{"a layer with a link", "to make an image layer write through its own link", func(dir string) []tar.Header {
			return []tar.Header{{Name: "out", Linkname: dir, Typeflag: tar.TypeSymlink}, {Name: "out/attack", Mode: 0o644, Typeflag: tar.TypeReg}}
		}},
		{"a layer with a relative link", "to make an image layer write through a link with ..", func(dir string) []tar.Header {
			return []tar.Header{{Name: "out", Linkname: "../../../../../../../../../.." + dir, Typeflag: tar.TypeSymlink}, {Name: "out/attack", Mode: 0o644, Typeflag: tar.TypeReg}}
		}},
		{"a layer that deletes", "to make an image layer delete a file of the machine", func(dir string) []tar.Header {
			return []tar.Header{{Name: "out", Linkname: dir, Typeflag: tar.TypeSymlink}, {Name: "out/.wh.secret", Mode: 0o644, Typeflag: tar.TypeReg}, {Name: "../../../../../../../.." + dir + "/.wh.secret", Mode: 0o644, Typeflag: tar.TypeReg}}
		}},
	} {
		all = append(all, Attack{
			Name: row.name, Class: Escapes, Defence: Layers, Tries: row.tries,
			Steps: []Step{image(func(secret string) []byte { return archive(row.entries(path.Dir(secret))...) })},
			Held:  "^=> (a runner|refused \\w+ ?.*)\n",
		})
	}
	return append(all, Attack{
		Name: "a layer with a hard link", Class: Escapes, Defence: Layers, Tries: "to hard-link a file of the machine into an image",
		Steps: []Step{image(func(secret string) []byte {
			return archive(tar.Header{Name: "hard", Linkname: secret, Typeflag: tar.TypeLink}, tar.Header{Name: "hard2", Linkname: "../../../../../../../.." + secret, Typeflag: tar.TypeLink})
		}), read("/hard"), read("/hard2")},
		Held: "^=> (a runner|refused \\w+ .*)\n(=> (no file|FILE of 0 bytes|refused \\w+ .*)\n){2}",
	})
}

// archive returns an image with one layer, in the format of docker save.
func archive(entries ...tar.Header) []byte {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer) // a buffer never fails
	for _, e := range entries {
		_ = w.WriteHeader(&e)
	}
	_ = w.Close()
	config, _ := json.Marshal(map[string]any{"os": "linux", "architecture": goruntime.GOARCH, "rootfs": map[string]any{
		"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
	}})
	var all bytes.Buffer
	w = tar.NewWriter(&all)
	for _, part := range []struct {
		name string
		text []byte
	}{{"manifest.json", []byte(`[{"Config": "config.json", "Layers": ["layer.tar"]}]`)}, {"config.json", config}, {"layer.tar", layer.Bytes()}} {
		_ = w.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))})
		_, _ = w.Write(part.text)
	}
	_ = w.Close()
	return all.Bytes()
}
