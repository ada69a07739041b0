package main

import (
	"fmt"
	"regexp"
)

// Semantic versions without build metadata: a plus sign cannot be in the tag of an image.
var tagForm = regexp.MustCompile(`^v((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)$`)

// versionOf is the version that a Git tag names, which the image and the chart have as their tags: without the v.
func versionOf(tag string) (string, error) {
	parts := tagForm.FindStringSubmatch(tag)
	if parts == nil {
		return "", fmt.Errorf("the tag %q is not like v1.2.3 or v1.2.3-rc.1", tag)
	}
	return parts[1], nil
}
