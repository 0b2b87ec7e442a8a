// Calls a method of the admin library for each line of its input: Part.Method, then its arguments,
// separated by tabs. Answers with "ok", or the status of the refusal, a tab, and the value as JSON.
// A line "methods" is answered with all there are.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin/config"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const lineBytesMax = 1 << 20

// What Pulsar has in version 3 of its interface only.
var ofV3 = map[string]bool{"Functions": true, "Sources": true, "Sinks": true, "Packages": true}

func main() {
	client, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: os.Args[1]})
	check(err)
	later, err := pulsaradmin.NewClient(
		&pulsaradmin.Config{WebServiceURL: os.Args[1], PulsarAPIVersion: config.V3})
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, lineBytesMax), lineBytesMax)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		chosen := client
		if ofV3[strings.Split(words[0], ".")[0]] {
			chosen = later
		}
		fmt.Println(strings.ReplaceAll(answer(chosen, words), "\n", "\\n"))
	}
}

func answer(client pulsaradmin.Client, words []string) (told string) {
	defer func() {
		if failed := recover(); failed != nil {
			told = fmt.Sprintf("cannot call\t%v", failed)
		}
	}()
	if words[0] == "methods" {
		return "ok\t" + strings.Join(methods(client), " ")
	}
	names := strings.Split(words[0], ".")
	part := reflect.ValueOf(client).MethodByName(names[0]).Call(nil)[0]
	method := part.MethodByName(names[1])
	if !method.IsValid() {
		return "cannot call\tthere is no such method"
	}
	kind := method.Type()
	values := []reflect.Value{}
	for number, text := range words[1:] {
		wanted := kind
		if kind.IsVariadic() && number >= kind.NumIn()-1 {
			values = append(values, value(text, wanted.In(kind.NumIn()-1).Elem()))
		} else {
			values = append(values, value(text, wanted.In(number)))
		}
	}
	returned := method.Call(values)
	last := len(returned) - 1
	if failed, _ := returned[last].Interface().(error); failed != nil {
		var refused rest.Error
		if errors.As(failed, &refused) {
			return fmt.Sprintf("%d\t%s", refused.Code, refused.Reason)
		}
		return "failed\t" + failed.Error()
	}
	shown := []string{}
	for _, each := range returned[:last] {
		text, err := json.Marshal(each.Interface())
		if err != nil {
			text = []byte(fmt.Sprint(each.Interface()))
		}
		shown = append(shown, string(text))
	}
	return "ok\t" + strings.Join(shown, " ")
}

// methods returns what can be called; with a context of its own each is there twice.
func methods(client pulsaradmin.Client) []string {
	found := []string{}
	parts := reflect.TypeOf(&client).Elem()
	for number := 0; number < parts.NumMethod(); number++ {
		part := parts.Method(number)
		if part.Type.NumIn() > 0 || part.Type.NumOut() != 1 {
			continue
		}
		made := part.Type.Out(0)
		if made.Kind() != reflect.Interface {
			continue
		}
		for each := 0; each < made.NumMethod(); each++ {
			if name := made.Method(each).Name; !strings.HasSuffix(name, "WithContext") {
				found = append(found, part.Name+"."+name)
			}
		}
	}
	sort.Strings(found)
	return found
}

func value(text string, wanted reflect.Type) reflect.Value {
	made := reflect.New(wanted).Elem()
	switch made.Interface().(type) {
	case utils.TopicName:
		name, err := utils.GetTopicName(text)
		check(err)
		return reflect.ValueOf(*name)
	case utils.NameSpaceName:
		name, err := utils.GetNamespaceName(text)
		check(err)
		return reflect.ValueOf(*name)
	case utils.MessageID:
		if text == "latest" {
			return reflect.ValueOf(utils.Latest)
		}
		if text == "earliest" {
			return reflect.ValueOf(utils.Earliest)
		}
		id, err := utils.ParseMessageID(text)
		check(err)
		return reflect.ValueOf(*id)
	}
	switch wanted.Kind() {
	case reflect.String:
		made.SetString(text)
	case reflect.Int, reflect.Int32, reflect.Int64:
		number, err := strconv.ParseInt(text, 10, 64)
		check(err)
		made.SetInt(number)
	case reflect.Bool:
		flag, err := strconv.ParseBool(text)
		check(err)
		made.SetBool(flag)
	default:
		check(json.Unmarshal([]byte(text), made.Addr().Interface()))
		if wanted.Kind() == reflect.Struct && made.FieldByName("Name").IsValid() {
			// The library leaves it out of the JSON of clusters and tenants.
			var named struct{ Name string }
			check(json.Unmarshal([]byte(text), &named))
			made.FieldByName("Name").SetString(named.Name)
		}
	}
	return made
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
