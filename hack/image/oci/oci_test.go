package oci_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

func images() []oci.Image {
	both := make([]oci.Image, 0, 2)
	for _, architecture := range []string{"amd64", "arm64"} {
		both = append(both, oci.Image{
			Platform: oci.Platform{OS: "linux", Architecture: architecture},
			Created:  time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
			Config:   oci.Config{User: "65532:65532", Entrypoint: []string{"/usr/bin/app"}},
			Files: []oci.File{
				{Path: "/usr/bin/app", Mode: 0o755, Content: []byte("for " + architecture)},
				{Path: "/etc/roots", Mode: 0o644, Content: []byte("the same for both")},
				{Path: "/lib", Link: "/usr/lib"},
			},
		})
	}
	return both
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	var archive bytes.Buffer
	if err := oci.Write(&archive, "example.com/app:v1", images()); err != nil {
		t.Fatal(err)
	}
	got, err := oci.Read(&archive)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d images, want one for each platform", len(got))
	}
	for i, want := range images() {
		if got[i].Platform != want.Platform {
			t.Errorf("image %d is for %s, want %s", i, got[i].Platform, want.Platform)
		}
		if diff := cmp.Diff(want.Config, got[i].Config); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
		// In the order of their paths, so that a directory is there before what is in it.
		paths := []string{"/etc", "/etc/roots", "/lib", "/usr", "/usr/bin", "/usr/bin/app"}
		var gotPaths []string
		for _, file := range got[i].Files {
			gotPaths = append(gotPaths, file.Path)
		}
		if diff := cmp.Diff(paths, gotPaths); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if app := got[i].Files[5]; string(app.Content) != "for "+want.Platform.Architecture || app.Mode != 0o755 {
			t.Errorf("the program of %s is %q, mode %o", want.Platform, app.Content, app.Mode)
		}
	}
}

func TestTheSameFilesGiveTheSameBytes(t *testing.T) {
	var first, second bytes.Buffer
	for _, archive := range []*bytes.Buffer{&first, &second} {
		if err := oci.Write(archive, "example.com/app:v1", images()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same images differ")
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, test := range []struct {
		name, image string
		change      func(*oci.Image)
	}{
		{name: "no tag", image: "example.com:5000/app"},
		{name: "an empty tag", image: "example.com/app:"},
		{name: "a relative path", image: "example.com/app:v1", change: func(i *oci.Image) { i.Files[0].Path = "app" }},
		{name: "a way out", image: "example.com/app:v1", change: func(i *oci.Image) { i.Files[0].Path = "/../app" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			image := images()[0]
			if test.change != nil {
				test.change(&image)
			}
			if err := oci.Write(&bytes.Buffer{}, test.image, []oci.Image{image}); err == nil {
				t.Error("it was written")
			}
		})
	}
}

func TestReadRefusesAChangedBlob(t *testing.T) {
	var archive bytes.Buffer
	if err := oci.Write(&archive, "example.com/app:v1", images()); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(archive.Bytes(), []byte("65532:65532"), []byte("65532:00000"), 1)
	if _, err := oci.Read(bytes.NewReader(changed)); err == nil || !strings.Contains(err.Error(), "another digest") {
		t.Errorf("Read of a changed archive: %v", err)
	}
}
