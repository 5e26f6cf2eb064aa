package graph

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
)

func (r runner) Files(ctx context.Context, of *runtime.Runner, path *string, recursive *bool, first *int, after *string) (model.FileConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.FileConnection{}, err
	}
	if path == nil {
		path = new(runtime.Workspace)
	}
	files, err := r.engine.Files.List(ctx, of.ID, *path, orZero(recursive))
	key := func(file runtime.File) string { return file.Path }
	return model.CutPage(files, key, page), err
}

func (r runner) File(ctx context.Context, of *runtime.Runner, path string, followLinks *bool) (*runtime.File, error) {
	found, ok, err := r.engine.Files.Get(ctx, of.ID, path, orZero(followLinks))
	if err != nil || !ok {
		return nil, err
	}
	return &found, nil
}

func (r file) Mode(_ context.Context, of *runtime.File) (string, error) {
	return fmt.Sprintf("%04o", of.Mode), nil
}

// DownloadURL returns an address for regular files only, because the download of any other entry is
// refused.
func (r file) DownloadURL(ctx context.Context, of *runtime.File) (*string, error) {
	p, err := r.engine.Callers.Allowed(ctx, "file")
	if err != nil || of.Type != runtime.FileRegular {
		return nil, err
	}
	return orNull(r.links.File(p, *of)), nil
}

func (r runner) SearchFiles(ctx context.Context, of *runtime.Runner, path, name, containing *string, maxMatches *int) (runtime.FileSearch, error) {
	return r.engine.Files.Search(ctx, of.ID, files.Search{Path: orZero(path), Name: orZero(name), Text: orZero(containing), MaxMatches: maxMatches})
}

// UploadFile writes a file while it arrives. The bits of a missing mode are 0.
func (r mutation) UploadFile(ctx context.Context, runnerID, path string, file transport.Upload, mode *string, protected *bool) (generated.UploadFilePayload, error) {
	bits, err := uint32(0), error(nil)
	if mode != nil {
		bits, err = permissions("mode", *mode)
	}
	if err != nil {
		return generated.UploadFilePayload{}, err
	}
	content, err := file.Open()
	if err != nil {
		return generated.UploadFilePayload{}, err
	}
	const unknown = -1 // a part doesn't announce its size
	written, err := r.engine.Files.Upload(ctx, runtime.RunnerID(runnerID), path, bits, orZero(protected), unknown, content)
	return generated.UploadFilePayload{File: written}, err
}

func (r mutation) UpdateFiles(ctx context.Context, in generated.UpdateFilesInput) (files.Updated, error) {
	writes, err := fileWrites("write", in.Write)
	if err != nil {
		return files.Updated{}, err
	}
	return r.engine.Files.Update(ctx, runtime.RunnerID(in.RunnerID), "write", files.Update{Empty: in.Empty, Delete: in.Delete, Write: writes, Protected: orZero(in.Protected)})
}

func (r mutation) MoveFile(ctx context.Context, in generated.MoveFileInput) (generated.MoveFilePayload, error) {
	moved, err := r.engine.Files.Move(ctx, runtime.RunnerID(in.RunnerID), in.From, in.To, orZero(in.Protected))
	return generated.MoveFilePayload{File: moved}, err
}

// fileWrites converts files. It returns INVALID_INPUT below field for a file without content, with
// two contents, or with an invalid mode.
func fileWrites(field string, in []generated.FileInput) ([]runtime.FileWrite, error) {
	out := make([]runtime.FileWrite, len(in))
	for i, file := range in {
		at := fmt.Sprintf("%s.%d", field, i)
		write := runtime.FileWrite{Path: file.Path, Directory: orZero(file.Directory)}
		if file.Mode != nil {
			mode, err := permissions(at+".mode", *file.Mode)
			if err != nil {
				return nil, err
			}
			write.Mode = mode
		}
		data, given, err := content(at, file.Text, file.Base64)
		switch {
		case err != nil:
			return nil, err
		case write.Directory && given:
			return nil, runtime.Invalid(at+".directory", "a directory can't have text or base64")
		case !write.Directory && !given:
			return nil, runtime.Invalid(at+".text", "either text or base64 must be given")
		}
		write.Data = data
		out[i] = write
	}
	return out, nil
}

// permissions parses permission bits. It returns INVALID_INPUT for field if they are invalid.
func permissions(field, text string) (uint32, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o7777 || mode == 0 {
		return 0, runtime.Invalid(field, `must be permission bits in octal, for example "0644"`)
	}
	return uint32(mode), nil
}

// content returns what was given as text or as base64, and whether anything was given. It returns
// INVALID_INPUT if both were.
func content(at string, text *string, data []byte) ([]byte, bool, error) {
	switch {
	case text != nil && data != nil:
		return nil, false, runtime.Invalid(at+".text", "text and base64 can't both be given")
	case text != nil:
		return []byte(*text), true, nil
	default:
		return data, data != nil, nil
	}
}
