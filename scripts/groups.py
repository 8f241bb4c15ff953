"""Groups of modules: each is one shared object, with a table of its modules.

To load a shared object takes 0.16 ms and 7 page faults, and a worker has 150 modules. A
linker knows no packages: PyInit_transport would be three functions. So each module is
compiled with a name of its own for that function. `cutthrough` finds the module in the
table, and may load it at any time later: it is of the same build as the others.
"""

from pathlib import Path
from typing import Any

from setuptools import Extension

# The group that also knows in which group each module is
FIRST = "cutthrough._modules"
TABLE = """\
#include <Python.h>
#include <string.h>

%(declarations)s
typedef struct { const char *name, *group; PyObject *(*begin)(void); } Row;
static const Row rows[] = {
%(rows)s
    {NULL, NULL, NULL}};

/* The module of a ModuleSpec, before its code runs */
static PyObject *create(PyObject *self, PyObject *spec)
{
    const Row *row = rows;
    PyObject *definition, *module = NULL, *name = PyObject_GetAttrString(spec, "name");
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
    if (text) {
        while (row->name && (!row->begin || strcmp(row->name, text)))
            row++;
        definition = row->name ? row->begin() : NULL;
        if (definition)
            module = PyModule_FromDefAndSpec((PyModuleDef *)definition, spec);
        else if (!row->name)
            PyErr_Format(PyExc_ImportError, "no module %%R", name);
    }
    Py_XDECREF(name);
    return module;
}

static PyObject *execute(PyObject *self, PyObject *module)
{
    PyModuleDef *definition = PyModule_GetDef(module);
    if (!definition || PyModule_ExecDef(module, definition) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A dict: the group of each module, by its name */
static PyObject *list(PyObject *self, PyObject *unused)
{
    PyObject *groups = PyDict_New();
    for (const Row *row = rows; groups && row->name; row++) {
        PyObject *group = PyUnicode_InternFromString(row->group);
        if (!group || PyDict_SetItemString(groups, row->name, group) < 0)
            Py_CLEAR(groups);
        Py_XDECREF(group);
    }
    return groups;
}

static PyMethodDef functions[] = {
    {"create", create, METH_O, NULL},
    {"execute", execute, METH_O, NULL},
    {"list", list, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "%(name)s", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_%(last)s(void)
{
    return PyModule_Create(&module);
}
"""


class Group(Extension):
    """A shared object. Its `members` have no libraries; without a table it is its only
    member."""

    def __init__(self, name: str, members: list[Extension], **libraries: Any) -> None:
        super().__init__(name, [], **libraries)
        self.members, self.has_table = members, name.startswith(FIRST)

    def renamed(self, module: Extension) -> list[tuple[str, str]]:
        """The macros that give a member's PyInit a name of its own."""
        last = module.name.rpartition(".")[2]
        return [(f"PyInit_{last}", init_of(module))] if self.has_table else []


def init_of(module: Extension) -> str:
    return f"PyInit_{module.name.replace('.', '__')}"


def add_tables(groups: list[Group], directory: Path, **arguments: Any) -> None:
    """Writes the tables, and makes each the first member of its group."""
    for group in groups:
        if not group.has_table:
            continue
        rows = [f'    {{"{module.name}", "{group.name}", {init_of(module)}}},'
                for module in group.members]
        if group.name == FIRST:
            rows += [f'    {{"{module.name}", "{other.name}", NULL}},'
                     for other in groups if other is not group and other.has_table
                     for module in other.members]
        last = group.name.rpartition(".")[2]
        text = TABLE % {
            "name": group.name, "last": last, "rows": "\n".join(rows),
            "declarations": "\n".join(
                f"extern PyObject *{init_of(module)}(void);"
                for module in group.members)}
        path = directory / f"{last}.c"
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        group.members.insert(0, Extension(f"{group.name}.table", [str(path)],
                                          **arguments))
