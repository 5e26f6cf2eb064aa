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

// layers returns the attacks of image layers.
func layers() []Attack {
	var all []Attack
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
			Steps: []Step{{kind: images, archive: func(secret string) []byte { return archive(row.entries(path.Dir(secret))...) }}},
			Held:  "^=> (a runner|refused \\w+ ?.*)\n",
		})
	}
	return append(all, Attack{
		Name: "a layer with a hard link", Class: Escapes, Defence: Layers, Tries: "to hard-link a file of the machine into an image",
		Steps: []Step{{kind: images, archive: func(secret string) []byte {
			return archive(tar.Header{Name: "hard", Linkname: secret, Typeflag: tar.TypeLink}, tar.Header{Name: "hard2", Linkname: "../../../../../../../.." + secret, Typeflag: tar.TypeLink})
		}}, read("/hard"), read("/hard2")},
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
