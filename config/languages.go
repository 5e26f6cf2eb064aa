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
	var wrong *language.Error
	if errors.As(err, &wrong) {
		return &Error{"languages", c.Languages, "a file of languages: " + wrong.InFile()}
	}
	return err
}
