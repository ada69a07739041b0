package plan

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Bounds of what is read, because a merge request may contain anything.
const (
	maxFiles    = 10_000
	maxFile     = 4 << 20
	maxTotal    = 64 << 20
	maxDocument = 1 << 20 // with its aliases replaced; a kube-apiserver takes no larger object
	maxDepth    = 100
)

// Manifest is an object of our API group, as it is written.
type Manifest struct {
	// Source is the file.
	Source string
	Object *unstructured.Unstructured
	// Variables: the manifest has variables of Flux's postBuild.
	Variables bool
}

// FluxTransforms is a Kustomization of Flux that changes objects before it applies them.
type FluxTransforms struct {
	Source, Namespace, Name string
	// Fields are the fields of the spec that change objects, such as postBuild.
	Fields []string
}

// Manifests are what files have.
type Manifests struct {
	Objects []Manifest
	// Ignored is the number of objects of other kinds.
	Ignored int
	// Flux are the Kustomizations of Flux among them that change what they apply.
	Flux []FluxTransforms
	// Namespaces has the namespaces that the files create.
	Namespaces map[string]bool

	bytes, files int
}

// Read reads a directory with what is below it, a file, or standard input if the name is "-". Names that begin with a dot hide nothing from
// GitOps tools; only what Flux itself leaves out is left out.
func (m *Manifests) Read(name string, stdin io.Reader) error {
	if name == "-" {
		return m.readFile("standard input", stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		name, err = filepath.Abs(name)
		if err != nil {
			return err
		}
		return m.within(filepath.Dir(name), func(root *os.Root) error { return m.open(root, filepath.Base(name)) })
	}
	return m.within(name, func(root *os.Root) error {
		return fs.WalkDir(root.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return m.visit(root, file, entry)
		})
	})
}

// within keeps what is read inside the directory.
func (*Manifests) within(directory string, read func(*os.Root) error) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	return errors.Join(read(root), root.Close())
}

func (m *Manifests) visit(root *os.Root, file string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir() && excluded[entry.Name()]:
		return fs.SkipDir
	case entry.IsDir() || excluded[entry.Name()]:
		return nil
	case kustomizations[entry.Name()]:
	case !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(file)):
		return nil
	}
	return m.open(root, file)
}

// excluded are the names that Flux's source-controller leaves out of each artifact, as far as they could be manifests: what belongs to Git
// and to tools of its hosts, which is no YAML of Kubernetes.
var excluded = map[string]bool{
	".git": true, ".github": true, ".circleci": true, ".travis.yml": true, ".gitlab-ci.yml": true, "appveyor.yml": true, ".drone.yml": true,
	"cloudbuild.yaml": true, "codeship-services.yml": true, "codeship-steps.yml": true, ".goreleaser.yml": true, ".sops.yaml": true, ".flux.yaml": true,
}

// kustomizations are the names of files that say what to build.
var kustomizations = map[string]bool{"kustomization.yaml": true, "kustomization.yml": true, "Kustomization": true}

var errKustomization = errors.New("the manifests have to be built first; pipe them: kubectl kustomize DIR | kubectl merchant plan -f -")

// open reads a regular file. A link could lead anywhere, and a pipe never ends.
func (m *Manifests) open(root *os.Root, file string) error {
	if kustomizations[path.Base(file)] {
		return fmt.Errorf("%s: %w", file, errKustomization)
	}
	info, err := root.Lstat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: neither a file nor a directory; symbolic links are not followed", file)
	}
	content, err := root.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(m.readFile(file, content), content.Close())
}

func (m *Manifests) readFile(source string, from io.Reader) error {
	m.files++
	if m.files > maxFiles {
		return fmt.Errorf("there are more than %d files", maxFiles)
	}
	limit := maxFile
	if source == "standard input" {
		limit = maxTotal
	}
	content, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	m.bytes += len(content)
	switch {
	case len(content) > limit:
		return fmt.Errorf("%s: larger than %d MiB", source, limit>>20)
	case m.bytes > maxTotal:
		return fmt.Errorf("the files are together larger than %d MiB", maxTotal>>20)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.readDocument(source, document)
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", source, n, err)
		}
	}
}

func (m *Manifests) readDocument(source string, document []byte) error {
	if err := checkDocument(document); err != nil {
		return err
	}
	text, err := kubeyaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil // a comment, or nothing that Kubernetes knows
	}
	var object unstructured.Unstructured
	if err := kubeyaml.Unmarshal(text, &object.Object); err != nil {
		return err
	}
	return m.add(source, &object, 0)
}

// checkDocument refuses a document that is too large, or becomes so when its aliases are replaced. The decoder shares what they stand for and
// bounds their number. It also refuses two in one, of which only the first would be read.
func checkDocument(document []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	var value, next any
	if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := decoder.Decode(&next); err == nil {
		return errors.New("another document follows; put a line --- between them")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	left := maxDocument
	if !fits(value, 0, &left) {
		return fmt.Errorf("larger than %d MiB with its aliases replaced, or nested deeper than %d", maxDocument>>20, maxDepth)
	}
	return nil
}

func fits(value any, depth int, left *int) bool {
	*left--
	if *left < 0 || depth > maxDepth {
		return false
	}
	switch value := value.(type) {
	case string:
		*left -= len(value)
	case []any:
		for _, one := range value {
			if !fits(one, depth+1, left) {
				return false
			}
		}
	case map[any]any:
		for key, one := range value {
			if !fits(key, depth+1, left) || !fits(one, depth+1, left) {
				return false
			}
		}
	}
	return *left >= 0
}

// listed returns the objects in a list. Flux, Argo CD and kubectl take any object with items for a list, whatever its kind. An item without a
// kind has the list's, as for kubectl.
func listed(list *unstructured.Unstructured) (objects []*unstructured.Unstructured) {
	items, _ := list.Object["items"].([]any)
	for _, item := range items {
		content, ok := item.(map[string]any)
		if !ok {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		if kind := strings.TrimSuffix(list.GetKind(), "List"); kind != "" && (object.GetKind() == "" || object.GetAPIVersion() == "") {
			object.SetKind(kind)
			object.SetAPIVersion(list.GetAPIVersion())
		}
		objects = append(objects, object)
	}
	return objects
}

// hasVariable reports whether a text in the value has a variable of Flux's postBuild, whose value is not in the manifests.
func hasVariable(value any) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, "${")
	case []any:
		return slices.ContainsFunc(value, hasVariable)
	case map[string]any:
		for name, one := range value {
			if hasVariable(name) || hasVariable(one) {
				return true
			}
		}
	}
	return false
}

// fluxTransforms are the fields of a Kustomization of Flux that change objects before they are applied.
var fluxTransforms = []string{"components", "images", "namePrefix", "nameSuffix", "patches", "postBuild", "targetNamespace"}

// addFluxKustomization keeps what a Kustomization of Flux changes in objects before it applies them: which objects these are, and how they end
// up, is not in the manifests.
func (m *Manifests) addFluxKustomization(source string, object *unstructured.Unstructured) {
	transforms := FluxTransforms{Source: source, Namespace: object.GetNamespace(), Name: object.GetName()}
	for _, field := range fluxTransforms {
		if _, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", field); found || err != nil {
			transforms.Fields = append(transforms.Fields, "spec."+field)
		}
	}
	if transforms.Fields == nil {
		m.Ignored++
		return
	}
	m.Flux = append(m.Flux, transforms)
}

// add takes an object, or the items of a list.
func (m *Manifests) add(source string, object *unstructured.Unstructured, depth int) error {
	kind := object.GroupVersionKind()
	ours := kind.Group == v1alpha1.SchemeGroupVersion.Group
	switch {
	case len(listed(object)) > 0 && depth < maxDepth:
		for _, item := range listed(object) {
			if err := m.add(source, item, depth+1); err != nil {
				return err
			}
		}
	case kind.Group == "kustomize.config.k8s.io":
		return errKustomization
	case ours:
		m.Objects = append(m.Objects, Manifest{Source: source, Object: object, Variables: hasVariable(object.Object)})
	case kind.Group == "kustomize.toolkit.fluxcd.io" && kind.Kind == "Kustomization":
		m.addFluxKustomization(source, object)
	default:
		if kind.Group == "" && kind.Kind == "Namespace" {
			if m.Namespaces == nil {
				m.Namespaces = map[string]bool{}
			}
			m.Namespaces[object.GetName()] = true
		}
		m.Ignored++
	}
	return nil
}

// Default puts objects without a namespace into this one, and refuses an object that is there twice: which of the two stays is unknown.
func (m *Manifests) Default(namespace string) error {
	first := map[[3]string]string{}
	for _, manifest := range m.Objects {
		object := manifest.Object
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		id := [3]string{object.GetKind(), object.GetNamespace(), object.GetName()}
		if other, twice := first[id]; twice {
			return fmt.Errorf("%s %q is there twice: in %q and in %q", id[0], id[1]+"/"+id[2], other, manifest.Source)
		}
		first[id] = manifest.Source
	}
	return nil
}
