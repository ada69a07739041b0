package oci

import (
	"time"
)

// Image is one image of one platform.
type Image struct {
	Platform Platform
	Config   Config
	Files    []File
	// Created is in the image's configuration, and the modification time of every file.
	Created time.Time
}

// Platform is what an image runs on, in Go's words.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// Config is how a container of an image starts.
type Config struct {
	// User is "uid:gid".
	User       string            `json:"User,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	WorkingDir string            `json:"WorkingDir,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

// File is one file of an image; the directories above it come by themselves. All belong to root.
type File struct {
	// Path is absolute.
	Path string
	// Mode is the permissions, such as 0o755.
	Mode    int64
	Content []byte
	// Link makes the file a symbolic link to this.
	Link string
	// Directory makes the file an empty directory.
	Directory bool
}
