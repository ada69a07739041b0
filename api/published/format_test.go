package published_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// format is how records of one kind are published, and the checks that are the same for all of them.
type format[Record any, Object metav1.Object] struct {
	// file is the data key, and the golden file in testdata.
	file string
	// valid returns a record with every field set.
	valid  func() Record
	encode func(namespace string, record Record) (Object, error)
	decode func(Object) (Record, error)
	// edit changes the data.
	edit func(Object, func(data []byte) []byte)
}

var (
	keyFormat       = secretFormat("record.json", keyRecord, published.EncodeKey, published.DecodeKey)
	merchantFormat  = configMapFormat("merchant.json", merchantRecord, published.EncodeMerchant, published.DecodeMerchant)
	webhookFormat   = secretFormat("webhook.json", webhookRecord, published.EncodeWebhook, published.DecodeWebhook)
	claimFormat     = secretFormat("claim.json", digestClaim, published.EncodeDigestClaim, published.DecodeDigestClaim)
	tombstoneFormat = configMapFormat("tombstone.json", tombstone, published.EncodeTombstone, published.DecodeTombstone)
)

func secretFormat[Record any](
	file string, valid func() Record, encode func(string, Record) (*corev1.Secret, error), decode func(*corev1.Secret) (Record, error),
) format[Record, *corev1.Secret] {
	edit := func(secret *corev1.Secret, change func([]byte) []byte) { secret.Data[file] = change(secret.Data[file]) }
	return format[Record, *corev1.Secret]{file, valid, encode, decode, edit}
}

func configMapFormat[Record any](
	file string, valid func() Record, encode func(string, Record) (*corev1.ConfigMap, error), decode func(*corev1.ConfigMap) (Record, error),
) format[Record, *corev1.ConfigMap] {
	edit := func(configMap *corev1.ConfigMap, change func([]byte) []byte) {
		configMap.Data[file] = string(change([]byte(configMap.Data[file])))
	}
	return format[Record, *corev1.ConfigMap]{file, valid, encode, decode, edit}
}

// nextRelease is the directory of testdata with what the code as it is writes. Each release has a directory as well, which never
// changes: the release's records may be in Kubernetes as long as their Merchants and ApiKeys.
const nextRelease = "next"

// checkReleases checks that the records of all releases are read, and keep what they say when they are written again.
func (fm format[Record, Object]) checkReleases(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", fm.file))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			object := fm.encoded(t)
			fm.edit(object, func([]byte) []byte { return text })
			record, err := fm.decode(object)
			if err != nil {
				t.Fatal(err)
			}
			again, err := fm.encode(credentials, record)
			if err != nil {
				t.Fatal(err)
			}
			var was, is map[string]any
			fm.edit(again, func(data []byte) []byte {
				if err := errors.Join(json.Unmarshal(text, &was), json.Unmarshal(data, &is)); err != nil {
					t.Fatal(err)
				}
				return data
			})
			maps.DeleteFunc(is, func(name string, _ any) bool { _, known := was[name]; return !known }) // added since
			if diff := cmp.Diff(was, is); diff != "" {
				t.Errorf("(-as that release wrote it +as it is written again):\n%s", diff)
			}
		})
	}
}

// encoded returns the object of the valid record.
func (fm format[Record, Object]) encoded(t *testing.T) Object {
	t.Helper()
	object, err := fm.encode(credentials, fm.valid())
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// checkWire checks the object of the valid record, which holds the golden file.
func (fm format[Record, Object]) checkWire(t *testing.T, want Object) {
	t.Helper()
	if diff := cmp.Diff(want, fm.encoded(t)); diff != "" {
		t.Errorf("the published object (-want +got):\n%s", diff)
	}
	decoded, err := fm.decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fm.valid(), decoded); diff != "" {
		t.Errorf("the record read from the golden file (-want +got):\n%s", diff)
	}
}

// checkRoundTrip checks that whatever is written is read.
func (fm format[Record, Object]) checkRoundTrip(t *testing.T, draw func(*rapid.T) Record) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		record := draw(t)
		object, err := fm.encode(credentials, record)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := fm.decode(object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, decoded, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

// checkIgnored checks that the record is read as if it had neither the change nor another label.
func (fm format[Record, Object]) checkIgnored(t *testing.T, change set) {
	t.Helper()
	object := fm.encoded(t)
	fm.edit(object, func(data []byte) []byte { return changed(t, data, change) })
	object.GetLabels()["another"] = "label"
	record, err := fm.decode(object)
	if err != nil {
		t.Fatalf("%s: %v", fm.file, err)
	}
	if diff := cmp.Diff(fm.valid(), record); diff != "" {
		t.Errorf("%s (-want +got):\n%s", fm.file, diff)
	}
}

// checkInvalid checks that no record with one of the changes is read.
func (fm format[Record, Object]) checkInvalid(t *testing.T, changes map[string]set) {
	t.Helper()
	for desc, change := range changes {
		t.Run(desc, func(t *testing.T) {
			fm.checkRefused(t, func(object Object) {
				fm.edit(object, func(data []byte) []byte { return changed(t, data, change) })
			})
		})
	}
}

// checkForeign checks that no object that somebody mutated is read.
func (fm format[Record, Object]) checkForeign(t *testing.T, mutations map[string]func(Object)) {
	t.Helper()
	for desc, mutate := range mutations {
		t.Run(desc, func(t *testing.T) { fm.checkRefused(t, mutate) })
	}
}

func (fm format[Record, Object]) checkRefused(t *testing.T, mutate func(Object)) {
	t.Helper()
	object := fm.encoded(t)
	mutate(object)
	_, err := fm.decode(object)
	assertRefused(t, err)
}

// fuzz checks that what is accepted can be written and read again. The object holds the data under a name that fits, so that mutation
// reaches the record behind it.
func (fm format[Record, Object]) fuzz(f *testing.F, object func(data []byte) Object) {
	f.Helper()
	golden, err := os.ReadFile(filepath.Join("testdata", nextRelease, fm.file))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:len(golden)/2])
	for _, seed := range []string{"", "null", "{}", "[]", `{"version":1}`, `{"version":2}`, `{"version":"1"}`, "\xff\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := fm.decode(object(data))
		if err != nil {
			if !errors.Is(err, published.ErrInvalid) {
				t.Fatalf("error %v does not wrap ErrInvalid", err)
			}
			return
		}
		written, err := fm.encode(credentials, record)
		if err != nil {
			t.Fatalf("an accepted record cannot be written: %v", err)
		}
		again, err := fm.decode(written)
		if err != nil {
			t.Fatalf("an accepted record cannot be read again: %v", err)
		}
		if diff := cmp.Diff(record, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}

// readGolden returns the file without the white space that makes it readable.
func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", nextRelease, name))
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return compact.Bytes()
}

// secretWord stands for content no error may quote.
const secretWord = "hunter2"

// set is one field of a record, by its path, and the value it is given; nil removes the field.
type set struct {
	path  string
	value any
}

// changed returns the record with one field set or removed.
func changed(t *testing.T, record []byte, change set) []byte {
	t.Helper()
	root := map[string]any{}
	if err := json.Unmarshal(record, &root); err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(change.path, ".")
	last := steps[len(steps)-1]
	parent := root
	for _, step := range steps[:len(steps)-1] {
		parent = parent[step].(map[string]any)
	}
	if change.value == nil {
		delete(parent, last)
	} else {
		parent[last] = change.value
	}
	out, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func assertRefused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, published.ErrInvalid) {
		t.Fatalf("error %v, want one that wraps ErrInvalid", err)
	}
	if strings.Contains(err.Error(), secretWord) || strings.Contains(err.Error(), "whsec_") {
		t.Errorf("the error quotes the record: %v", err)
	}
}
