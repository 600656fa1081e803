/* A library with none of the symbols that the loader asks for. */
int fake_empty;
