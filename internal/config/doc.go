// Package config reads what an operator says: a YAML file, then environment
// variables, then flags, of which the later outweigh the earlier. All three name
// the same settings, which are listed once, in settings.go: read that first.
//
// It does not run anything: Load returns what package daemon takes, and Watch says
// when the file changed. Errors name the place, the setting, the value and the bound,
// and all of them are found at once.
package config
