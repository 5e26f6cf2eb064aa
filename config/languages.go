package config

import (
	"errors"

	"github.com/rockpool/rockpool/runtime/language"
)

// readLanguages reads the recipes of the languages.
func (c *Config) readLanguages() (err error) {
	if c.Languages == "" {
		c.Recipes = language.Default()
		return nil
	}
	c.Recipes, err = language.Load(c.Languages)
	if wrong, ok := errors.AsType[*language.Error](err); ok {
		return &Error{"languages", c.Languages, "a file of languages: " + wrong.InFile()}
	}
	return err
}
