// Package image implements rockpool image: it builds images for environments from Debian's packages,
// without a container engine, and lists them. With the same packages and the same SOURCE_DATE_EPOCH an
// image has the same digest.
package image

import (
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/language"
)

// Commands are the commands below rockpool image.
type Commands struct {
	Build buildCommand `cmd:"" help:"Build an image with languages from Debian's packages."`
	List  listCommand  `cmd:"" help:"List the images in the directory of image files, or the languages that images can have."`
}

// Settings are the flags that find the server's settings.
type settings struct {
	Config string `name:"config" env:"ROCKPOOL_CONFIG" placeholder:"FILE" complete:"file" help:"Settings file to use, instead of the one that rockpool serve finds. ($$${env})"`
}

// read returns the directory of image files and the recipes of the server.
func (s settings) read() (directory string, recipes *language.Set, err error) {
	c, err := config.Private(s.Config)
	if err != nil {
		return "", nil, err
	}
	return c.Images.Files, c.Recipes, nil
}
