package clients

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestContents(t *testing.T) {
	const size = 200_000
	read := func(version, cut int) (string, error) {
		text, err := io.ReadAll(&content{version: version, left: size, cut: cut})
		return string(text), err
	}
	one, err := read(1, size)
	if err != nil || len(one) != size || !strings.HasPrefix(one, "0000001 0000000\n0000001 0000001\n") || strings.Count(one, "\n") != size/lineBytes {
		t.Errorf("%d bytes, %v: %.40q", len(one), err, one)
	}
	if two, _ := read(2, size); two == one || len(two) != size {
		t.Error("two versions are the same")
	}
	if part, err := read(1, 70_000); !errors.Is(err, errCut) || len(part) != 70_000 || !strings.HasPrefix(one, part) {
		t.Errorf("cut off after %d bytes: %v", len(part), err)
	}
}
